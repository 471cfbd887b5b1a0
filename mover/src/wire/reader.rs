//! A cursor over received bytes that cannot overrun, and its counterpart. All integers are
//! little-endian.

use base::fault::Fault;

/// Reads values from the front of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        if count > self.rest.len() {
            return Err(Fault::peer("the peer sent a message that ends too early"));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Fault> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes after their length (16 bits), at most `max` of them.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], Fault> {
        let count = usize::from(self.u16()?);
        if count > max {
            return Err(Fault::peer(format!(
                "the peer sent {count} bytes where {max} are allowed"
            )));
        }
        self.take(count)
    }

    pub fn text(&mut self, max: usize) -> Result<String, Fault> {
        let bytes = self.bytes(max)?;
        String::from_utf8(bytes.to_vec())
            .map_err(|_| Fault::peer("the peer sent text that is not UTF-8"))
    }

    pub fn option<T>(
        &mut self,
        value: impl FnOnce(&mut Reader<'a>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match self.u8()? {
            0 => Ok(None),
            1 => value(self).map(Some),
            other => Err(Fault::peer(format!("the peer sent {other} where 0 or 1 is meant"))),
        }
    }

    pub fn flag(&mut self) -> Result<bool, Fault> {
        Ok(self.option(|_| Ok(()))?.is_some())
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Refuses remaining bytes.
    pub fn end(&self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(Fault::peer(format!("the peer sent a message with {more} bytes too many"))),
        }
    }
}

/// Appends values to a message.
#[derive(Debug, Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes after their length; the caller keeps them under 64 KiB.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let count = u16::try_from(bytes.len()).expect("a field of at most 65,535 bytes");
        self.u16(count);
        self.raw(bytes);
    }

    /// Text for people, cut to what one field may hold.
    pub fn text(&mut self, text: &str, max: usize) {
        let mut end = text.len().min(max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end]);
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        match value {
            None => self.u8(0),
            Some(value) => {
                self.u8(1);
                write(self, value);
            }
        }
    }

    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }
}
