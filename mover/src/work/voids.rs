//! The list of voids of a request: written after its payload, and read from there.

use crate::io::request::Request;
use crate::wire::voids;
use base::fault::Fault;
use base::limits::HEADROOM_BYTES;

/// Writes the request's list after its payload.
pub fn write(request: &mut Request) {
    request.voids.sort_by_key(|(segment, _)| *segment);
    let start = (HEADROOM_BYTES + request.payload_len()) as usize;
    let Request { voids, buffer, .. } = request;
    let len = voids::encode(voids, &mut buffer.bytes_mut()[start..]);
    request.label.body_len = request.payload_len() + len as u32;
    request.label.voids_len = len as u16;
}

/// Reads the list that follows the payload.
pub fn read(request: &mut Request) -> Result<(), Fault> {
    let mut voids = std::mem::take(&mut request.voids);
    let read = voids::decode(&request.body()[request.payload_len() as usize..], &mut voids);
    request.voids = voids;
    read
}
