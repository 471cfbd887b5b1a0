//! Each verb as one blocking call, made on the calling thread.

use std::io;

use rustix::net::{RecvFlags, SendFlags};

use super::backend::{Speed, Verb};
use super::request::{ExtraPiece, Request};
use super::store::Store;
use super::tcp;
use super::volume::{Batch, Handle};
use base::limits::HEADROOM_BYTES;
use base::settings::Receive;

/// Whether a receive may return without bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Block,
    Peek,
}

/// Does the verb now. Blocks for as long as it takes.
pub(super) fn perform(verb: &Verb, request: &mut Request) -> io::Result<u32> {
    match verb {
        Verb::ReadAt { file, offset, .. } => {
            let at = offset + u64::from(request.moved);
            if let Handle::Object(object) = file {
                return object.read_at(at, request.pending_bytes_mut());
            }
            count(rustix::io::pread(file.fd(), request.pending_bytes_mut(), at))
        }
        Verb::WriteAt { file, offset, .. } => {
            let at = offset + u64::from(request.moved);
            if let Handle::Object(object) = file {
                return object.write_at(at, request.pending_bytes(), crc64_of(request, at));
            }
            count(rustix::io::pwrite(file.fd(), request.pending_bytes(), at))
        }
        Verb::Gather(batch) => Ok(gather(batch, request)),
        Verb::Scatter(batch) => Ok(scatter(batch, request)),
        Verb::Receive { .. } => receive(verb, request, Patience::Block),
        Verb::Send { socket } => {
            count(rustix::net::send(socket.fd(), request.pending_bytes(), SendFlags::NOSIGNAL))
        }
        Verb::ReadNext { pipe } => read_next(pipe, request),
        Verb::WriteNext { pipe } => count(rustix::io::write(pipe.fd(), request.pending_bytes())),
    }
}

/// Receives from a socket: all bytes that are needed, or those that have arrived. A request that
/// needs less than its span takes those that have arrived.
pub(super) fn receive(verb: &Verb, request: &mut Request, patience: Patience) -> io::Result<u32> {
    let Verb::Receive { socket, how, quick_ack } = verb else { panic!("{verb:?} is no receive") };
    let whole = request.need == request.span.end - request.span.start;
    let all = whole && *how == Receive::WaitAll;
    let flags = match patience {
        Patience::Block if all => RecvFlags::WAITALL,
        Patience::Block => RecvFlags::empty(),
        Patience::Peek => RecvFlags::DONTWAIT,
    };
    let received = rustix::net::recv(socket.fd(), request.pending_bytes_mut(), flags);
    if *quick_ack && received.is_ok() {
        tcp::acknowledge(socket);
    }
    received.map(|(_, count)| count as u32).map_err(io::Error::from)
}

/// Reads what is in the page cache; `WouldBlock` when the read would wait for a device.
pub(crate) fn read_cached(verb: &Verb, request: &mut Request) -> io::Result<u32> {
    let Verb::ReadAt { file, offset, speed: Speed::Cached } = verb else {
        return Err(io::ErrorKind::WouldBlock.into());
    };
    let at = offset + u64::from(request.moved);
    let bytes = &mut [io::IoSliceMut::new(request.pending_bytes_mut())];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    count(rustix::io::preadv2(file.fd(), bytes, at, flags))
}

pub(crate) fn read_next(pipe: &Handle, request: &mut Request) -> io::Result<u32> {
    count(rustix::io::read(pipe.fd(), request.pending_bytes_mut()))
}

/// Reads what a pipe has; `WouldBlock` when it is empty now, another error where the kernel does
/// not support that.
pub(crate) fn read_there(pipe: &Handle, request: &mut Request) -> io::Result<u32> {
    let bytes = &mut [io::IoSliceMut::new(request.pending_bytes_mut())];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    // Without an offset, as a plain read.
    count(rustix::io::preadv2(pipe.fd(), bytes, u64::MAX, flags))
}

fn count(result: rustix::io::Result<usize>) -> io::Result<u32> {
    result.map(|count| count as u32).map_err(io::Error::from)
}

/// The CRC-64/NVME of what is to be written at an offset, where the passage has computed it.
fn crc64_of(request: &Request, at: u64) -> Option<u64> {
    let len = request.pending().len() as u64;
    let [piece] = &request.extra[..] else { return None };
    piece.crc64.filter(|_| (piece.offset, piece.len) == (at, len))
}

/// The store of a batch of small objects: all of a batch have the same.
fn store_of(batch: &Batch) -> Option<&dyn Store> {
    batch.segments.first()?.volume.as_ref()?.store()
}

/// Reads each small file into its place; one that fails is void and leaves zeros.
pub(crate) fn gather(batch: &Batch, request: &mut Request) -> u32 {
    if let Some(store) = store_of(batch) {
        let body = HEADROOM_BYTES as usize..(HEADROOM_BYTES + batch.bytes()) as usize;
        let failed = store.read_many(&batch.segments, &mut request.buffer.bytes_mut()[body]);
        request.voids.extend(failed);
        return request.span.end - request.span.start;
    }
    for (index, segment) in batch.segments.iter().enumerate() {
        let Some(volume) = &segment.volume else { continue };
        let at = (HEADROOM_BYTES + segment.at) as usize;
        let into = &mut request.buffer.bytes_mut()[at..at + segment.len as usize];
        if let Err(fault) = volume.read_small(segment, into) {
            into.fill(0);
            request.voids.push((index as u16, fault));
        }
    }
    request.span.end - request.span.start
}

/// Writes each small file from its place, except those that are void already.
pub(crate) fn scatter(batch: &Batch, request: &mut Request) -> u32 {
    if let Some(store) = store_of(batch) {
        let body = HEADROOM_BYTES as usize..(HEADROOM_BYTES + batch.bytes()) as usize;
        let skip: Vec<u16> = request.voids.iter().map(|(index, _)| *index).collect();
        let from = &request.buffer.bytes()[body];
        let written = store.write_many(&batch.segments, &skip, from, &request.extra);
        for (index, made) in written {
            match made {
                Ok(made) => request.made.push((index, made)),
                Err(fault) => request.voids.push((index, fault)),
            }
        }
        return request.span.end - request.span.start;
    }
    for (index, segment) in batch.segments.iter().enumerate() {
        let Some(volume) = &segment.volume else { continue };
        if request.is_void(index) {
            continue;
        }
        let at = (HEADROOM_BYTES + segment.at) as usize;
        let from = &request.buffer.bytes()[at..at + segment.len as usize];
        let extra = ExtraPiece::of(&request.extra, index as u16);
        match volume.write_small(segment, from, extra) {
            Ok(made) => request.made.push((index as u16, made)),
            Err(fault) => request.voids.push((index as u16, fault)),
        }
    }
    request.span.end - request.span.start
}
