//! Code points of differentiated services: how packets are marked for the network (RFC 2474).

use std::fmt;

/// A code point from 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

/// The values of `--dscp`, as the user reads them.
pub const DSCP_PHRASE: &str =
    "a name (cs0 to cs7, af11 to af43, ef, va, le) or a number from 0 to 63";

const NAMES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
    ("le", 1),
];

impl Dscp {
    /// `None` for a code of more than six bits.
    pub fn from_code(code: u8) -> Option<Dscp> {
        (code < 64).then_some(Dscp(code))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    /// The octet with the code point in its upper six bits; the kernel uses the lower two for
    /// congestion notification.
    pub fn octet(self) -> u8 {
        self.0 << 2
    }

    /// The error says what to write instead.
    pub fn parse(text: &str) -> Result<Dscp, String> {
        let lower = text.to_ascii_lowercase();
        let named = NAMES.iter().find(|(name, _)| *name == lower).map(|(_, code)| *code);
        let code = named.or_else(|| text.parse().ok());
        code.and_then(Dscp::from_code).ok_or_else(|| format!("write {DSCP_PHRASE}"))
    }
}

/// Its name, or its number where it has none.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, code)| *code == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points() {
        let cases = [
            ("cs1", Some((8, 0x20, "cs1"))),
            ("AF41", Some((34, 0x88, "af41"))),
            ("ef", Some((46, 0xb8, "ef"))),
            ("le", Some((1, 0x04, "le"))),
            ("46", Some((46, 0xb8, "ef"))),
            ("0", Some((0, 0, "cs0"))),
            ("63", Some((63, 0xfc, "63"))),
            ("64", None),
            ("-1", None),
            ("af44", None),
            ("", None),
        ];
        for (text, expect) in cases {
            let got = Dscp::parse(text).ok();
            let got = got.map(|dscp| (dscp.code(), dscp.octet(), dscp.to_string()));
            let expect = expect.map(|(code, octet, name)| (code, octet, name.to_string()));
            assert_eq!(got, expect, "{text}");
        }
    }
}
