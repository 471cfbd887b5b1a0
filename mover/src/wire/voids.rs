//! The list of voids after a payload: what the source could not read, by segment, and why.
//! Each is `segment u16 | class u8 | length u8 | reason`.

use base::fault::{Class, Fault};
use base::limits::{BLOCK_BYTES, OFFER_ENTRIES_MAX};

/// A void without a reason.
const VOID_BYTES_MIN: usize = 4;
/// The length that means: for the same reason as the one before.
const SAME_REASON: u8 = u8::MAX;
const REASON_BYTES_MAX: usize = SAME_REASON as usize - 1;
const _: () = assert!(VOID_BYTES_MIN * OFFER_ENTRIES_MAX <= BLOCK_BYTES as usize);

/// Writes a list, in the order of its segments; returns its length. Where it does not fit a block,
/// reasons omit the names of their files, and a reason like the one before becomes a mark; what
/// then still does not fit is cut.
pub fn encode(voids: &[(u16, Fault)], bytes: &mut [u8]) -> usize {
    let mut at = 0;
    let mut room = BLOCK_BYTES as usize - VOID_BYTES_MIN * voids.len();
    let reasons = voids.iter().map(|(_, fault)| fault.text.len().min(REASON_BYTES_MAX));
    let fits = reasons.sum::<usize>() <= room;
    let mut before: Option<String> = None;
    for (segment, fault) in voids {
        let text = if fits { fault.text.clone() } else { nameless(&fault.text) };
        let same = !fits && before.as_ref() == Some(&text);
        let count = if same { 0 } else { text.len().min(room).min(REASON_BYTES_MAX) };
        room -= count;
        let len = if same { SAME_REASON } else { count as u8 };
        let [low, high] = segment.to_le_bytes();
        let front = [low, high, fault.class.exit_code(), len];
        bytes[at..at + VOID_BYTES_MIN].copy_from_slice(&front);
        at += VOID_BYTES_MIN;
        bytes[at..at + count].copy_from_slice(&text.as_bytes()[..count]);
        at += count;
        before = Some(text);
    }
    at
}

/// Reads a list to the end of `voids`.
pub fn decode(mut list: &[u8], voids: &mut Vec<(u16, Fault)>) -> Result<(), Fault> {
    let mut before: &[u8] = b"";
    while let [low, high, class, len, rest @ ..] = list {
        let (same, len) = (*len == SAME_REASON, usize::from(*len));
        let Some((reason, rest)) = rest.split_at_checked(if same { 0 } else { len }) else {
            break;
        };
        let Some(class) = Class::from_code(*class) else { break };
        if !same {
            before = reason;
        }
        let reason = match before {
            b"" => "its reason did not fit: copied alone it is told".to_string(),
            reason => String::from_utf8_lossy(reason).into_owned(),
        };
        voids.push((u16::from_le_bytes([*low, *high]), Fault::new(class, reason)));
        list = rest;
    }
    match list.is_empty() {
        true => Ok(()),
        false => Err(Fault::peer("a frame with a list of voids that cannot be read")),
    }
}

/// A reason without the name that it quotes: the receiver knows the name of the file.
fn nameless(text: &str) -> String {
    match (text.find('\''), text.rfind('\'')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}it{}", &text[..open], &text[close + 1..])
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these reasons and reads them again.
    fn again(reasons: impl Iterator<Item = String>) -> (usize, Vec<(u16, Fault)>) {
        let voids: Vec<_> = (0..).zip(reasons.map(|text| Fault::new(Class::Local, text))).collect();
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let len = encode(&voids, &mut bytes);
        let mut read = Vec::new();
        decode(&bytes[..len], &mut read).unwrap();
        assert_eq!(read.len(), voids.len());
        (len, read)
    }

    /// However many files of a batch fail, each has its reason at the other end.
    #[test]
    fn every_void_has_its_reason() {
        let denied = "Permission denied (os error 13)";
        for count in [1, 20, OFFER_ENTRIES_MAX / 2] {
            let reason = |segment| format!("cannot open '/data/a folder/{segment}.txt': {denied}");
            let (_, voids) = again((0..count).map(reason));
            for (segment, (number, fault)) in voids.iter().enumerate() {
                assert_eq!(usize::from(*number), segment);
                assert!(fault.text.ends_with(denied), "{count}: {segment}: {}", fault.text);
                assert!(fault.text.starts_with("cannot open"), "{count}: {segment}: {fault}");
            }
        }
    }

    /// A reason that fits no list says so, and is not empty.
    #[test]
    fn reasons_that_fit_no_list_are_not_empty() {
        let (len, voids) = again((0..200).map(|n| format!("{n}{}", "why".repeat(80))));
        assert!(len <= BLOCK_BYTES as usize);
        assert!(voids.iter().all(|(_, fault)| !fault.text.is_empty()));
    }
}
