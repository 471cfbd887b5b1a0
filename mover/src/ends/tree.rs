//! Files: read or written in place, long ones in parts, many short ones in one request.

use super::endpoint::{Endpoint, Nature, Next};
use crate::io::backend::{Speed, Verb};
use crate::io::call::Call;
use crate::io::holes;
use crate::io::request::{Content, Leg, Part, Request};
use crate::io::volume::{Cache, Handle, LazyFile, changed, show};
use crate::work::voids;
use base::fault::Fault;
use base::label::{Kind, MAPPED_BYTES_MAX};
use base::limits::{BLOCK_BYTES, HEADROOM_BYTES};

/// The file end of a pump; the content of each request says which files.
#[derive(Debug)]
pub struct Tree {
    depth: u32,
}

impl Tree {
    pub fn new(depth: u32) -> Tree {
        Tree { depth }
    }
}

impl Endpoint for Tree {
    fn nature(&self) -> Nature {
        Nature::Addressed { depth: self.depth }
    }

    fn next(&mut self, request: &mut Request) -> Next {
        let content = request.content.clone();
        let next = match (&content, request.leg, request.hops) {
            (Content::Part(part), Leg::In, 0) => read_or_skip(part, request),
            (Content::Part(part), Leg::In, _) => check_read(part, request),
            (Content::Part(part), Leg::Out, _) if file_of(part).sparse => write_data(part, request),
            (Content::Part(part), Leg::Out, 0) => write(part, request),
            (Content::Part(part), Leg::Out, _) => check_written(part, request),
            (Content::Batch(batch), Leg::In, 0) => {
                request.ask(request.body_span());
                Ok(Next::Do(Verb::Gather(batch.clone())))
            }
            (Content::Batch(batch), Leg::In, _) => {
                voids::write(request);
                let may_have_map = request.voids.is_empty() && batch.bytes() <= MAPPED_BYTES_MAX;
                if may_have_map && batch.segments.iter().any(|file| file.sparse) {
                    request.find_holes();
                }
                Ok(Next::Done)
            }
            (Content::Batch(batch), Leg::Out, 0) => {
                request.ask(request.body_span());
                Ok(Next::Do(Verb::Scatter(batch.clone())))
            }
            (Content::Batch(_), Leg::Out, _) => Ok(Next::Done),
            (Content::Unknown, ..) => panic!("a request without content at a tree"),
        };
        next.unwrap_or_else(Next::Void)
    }
}

fn file_of(part: &Part) -> &LazyFile {
    part.file.as_ref().expect("a part of a file at a tree")
}

fn speed_of(file: &LazyFile) -> Speed {
    if file.volume.store().is_some() {
        return Speed::Store;
    }
    match (file.volume.waits(), file.cache()) {
        (false, _) => Speed::Copy,
        (true, Cache::Through) => Speed::Cached,
        (true, Cache::Around) => Speed::Device,
    }
}

/// A hole is neither read nor sent.
fn read_or_skip(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    if file.sparse {
        let end = part.offset + u64::from(request.label.extent.len);
        let data = file.volume.next_data(file.handle()?, &file.path, part.offset)?;
        if data.is_none_or(|data| data >= end) {
            file.check_unchanged()?;
            return Ok(hole(request));
        }
    }
    read(part, request)
}

fn hole(request: &mut Request) -> Next {
    request.label.kind = Kind::Zero;
    request.label.body_len = 0;
    Next::Done
}

fn read(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    let handle = file.handle()?.clone();
    let len = request.label.body_len;
    // Direct I/O reads only whole blocks; the end of the file cuts the last one short.
    let asked = match file.cache() {
        Cache::Through => len,
        Cache::Around => len.next_multiple_of(BLOCK_BYTES),
    };
    request.ask(HEADROOM_BYTES..HEADROOM_BYTES + asked);
    request.need = len;
    Ok(Next::Do(Verb::ReadAt { file: handle, offset: part.offset, speed: speed_of(file) }))
}

fn check_read(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    match request.outcome {
        Err(errno) => return Err(fault(Call::Read, file, errno)),
        Ok(count) if count < request.label.body_len => {
            return Err(changed(&*file.volume, &file.path));
        }
        Ok(_) => {}
    }
    file.check_unchanged()?;
    if file.sparse {
        request.find_holes();
        if request.left_out() == request.label.extent.len {
            return Ok(hole(request));
        }
    }
    Ok(Next::Done)
}

fn write(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    let handle = file.handle()?.clone();
    let span = request.body_span();
    let end = match file.cache() {
        Cache::Through => span.end,
        Cache::Around => span.end.next_multiple_of(BLOCK_BYTES),
    };
    // The padding of the last block is cut off when the file is finished.
    request.buffer.bytes_mut()[span.end as usize..end as usize].fill(0);
    request.ask(span.start..end);
    let offset = part.offset - file.first;
    Ok(Next::Do(Verb::WriteAt { file: handle, offset, speed: speed_of(file) }))
}

/// Writes what is not zeros, one run of blocks after the other; the rest stays a hole.
fn write_data(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    let body = request.body_span();
    let from = match request.hops {
        0 => 0,
        _ => {
            check_written(part, request)?;
            request.span.end - body.start
        }
    };
    let handle = file.handle()?.clone();
    let data = match request.label.kind {
        Kind::Zero => None,
        _ => holes::next_data(request.body(), from as usize),
    };
    let Some(data) = data else { return Ok(Next::Done) };
    let (start, end) = (body.start + data.start as u32, body.start + data.end as u32);
    let padded = match file.cache() {
        Cache::Through => end,
        Cache::Around => end.next_multiple_of(BLOCK_BYTES),
    };
    if end == body.end {
        request.buffer.bytes_mut()[end as usize..padded as usize].fill(0);
    }
    request.ask(start..padded);
    let offset = part.offset - file.first + data.start as u64;
    Ok(Next::Do(Verb::WriteAt { file: handle, offset, speed: speed_of(file) }))
}

fn check_written(part: &Part, request: &mut Request) -> Result<Next, Fault> {
    let file = file_of(part);
    match request.outcome {
        Ok(count) if count == request.need => Ok(Next::Done),
        Ok(_) => Err(fault(Call::Write, file, libc::EIO)),
        Err(errno) => Err(fault(Call::Write, file, errno)),
    }
}

fn fault(call: Call, file: &LazyFile, errno: i32) -> Fault {
    if let Some(fault) = file.opened().and_then(Handle::fault) {
        return fault;
    }
    call.fault(show(&*file.volume, &file.path).as_ref(), errno)
}
