//! What goes over a login of a worker: lines of JSON, and between them what the far sides of copies
//! read and write. A line never begins as one of the others does.

use std::io::{self, BufRead, Read, Write};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Without its end.
    Line(Vec<u8>),
    /// A far side of this number is started.
    Start(u32),
    /// What it reads or writes.
    Bytes(u32, Vec<u8>),
    /// Its input ends, or it has ended with this code.
    End(u32, u8),
}

impl Piece {
    pub(super) fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        match self {
            Piece::Line(line) => {
                to.write_all(line)?;
                to.write_all(b"\n")?;
            }
            Piece::Start(number) => put(to, START, *number, &[])?,
            Piece::Bytes(number, bytes) => put(to, BYTES, *number, bytes)?,
            Piece::End(number, code) => put(to, END, *number, &[*code])?,
        }
        to.flush()
    }

    /// The next one; `None` at the end, or where it breaks off.
    pub(super) fn read(from: &mut dyn BufRead) -> io::Result<Option<Piece>> {
        let kind = match from.fill_buf()?.first() {
            Some(kind @ (&START | &BYTES | &END)) => *kind,
            Some(_) => return Ok(line(from)?.map(Piece::Line)),
            None => return Ok(None),
        };
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (of, len) = (number(1), number(5) as usize);
        if len > BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes)?;
        Ok(Some(match kind {
            START => Piece::Start(of),
            BYTES => Piece::Bytes(of, bytes),
            _ => Piece::End(of, bytes.first().copied().unwrap_or_default()),
        }))
    }
}

fn put(to: &mut dyn Write, kind: u8, number: u32, bytes: &[u8]) -> io::Result<()> {
    let mut all = Vec::with_capacity(HEAD_BYTES + bytes.len());
    all.push(kind);
    all.extend(number.to_le_bytes());
    all.extend((bytes.len() as u32).to_le_bytes());
    all.extend(bytes);
    to.write_all(&all)
}

/// Passes on what can be read until that ends; false where nobody takes it any more.
pub(super) fn pass_on(
    from: &mut dyn Read,
    number: u32,
    take: &mut dyn FnMut(Piece) -> bool,
) -> bool {
    let mut bytes = vec![0; BYTES_MAX];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return true,
            Ok(count) if !take(Piece::Bytes(number, bytes[..count].to_vec())) => return false,
            Ok(_) => {}
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

/// The next line without its end; `None` at the end of the input, or where it breaks off.
pub(super) fn line(input: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}

/// JSON begins with none of these, and no text does.
const START: u8 = 1;
const BYTES: u8 = 2;
const END: u8 = 3;
/// What it is, of which far side, and how long.
const HEAD_BYTES: usize = 9;
const BYTES_MAX: usize = 64 << 10;
/// More than a step with its most names, of the greatest length, needs.
const LINE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_as_they_were_written() {
        let pieces = [
            Piece::Line(b"{\"step\":1}".to_vec()),
            Piece::Start(7),
            Piece::Bytes(7, b"\n\x01{\n".to_vec()),
            Piece::Bytes(u32::MAX, vec![0; BYTES_MAX]),
            Piece::End(7, 130),
            Piece::Line(Vec::new()),
        ];
        let mut all = Vec::new();
        pieces.iter().for_each(|piece| piece.write(&mut all).unwrap());
        let mut from = &all[..];
        for piece in pieces {
            assert_eq!(Piece::read(&mut from).unwrap(), Some(piece));
        }
        assert_eq!(Piece::read(&mut from).unwrap(), None);
        // One that breaks off, or is longer than any, is none.
        assert_eq!(Piece::read(&mut &b"{\"step\""[..]).unwrap(), None);
        assert!(Piece::read(&mut &all[11..15]).is_err());
        let too_long = [&[BYTES][..], &7_u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
        assert!(Piece::read(&mut &too_long[..]).is_err());
    }
}
