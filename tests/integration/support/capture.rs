//! Windows and DSCP marks in a packet capture, as printed by tcpdump.

use std::path::Path;
use std::process::Command;

/// What one host has advertised on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advertised {
    /// In its first packet, where the window is not shifted yet.
    pub first_bytes: u64,
    pub scale: u32,
    /// The largest of all others.
    pub most_bytes: u64,
}

/// The packets of a file as tcpdump prints them: `-v` shows marks too.
pub(crate) fn words_of(pcap: &Path, options: &[&str]) -> Result<String, String> {
    let output = Command::new("tcpdump").args(["-n", "-r"]).arg(pcap).args(options).output();
    let output = output.map_err(|why| format!("tcpdump: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The windows that this address has advertised, over all its connections without ssh: the largest.
pub(crate) fn advertised(words: &str, address: &str) -> Option<Advertised> {
    let from = format!(" IP {address}.");
    let mut found: Option<(String, Advertised)> = None;
    for line in words.lines() {
        let Some((_, rest)) = line.split_once(&from) else { continue };
        let Some((ends, fields)) = rest.split_once(": Flags [") else { continue };
        let Some((flags, fields)) = fields.split_once(']') else { continue };
        let Some(window) = number_behind(fields, "win ") else { continue };
        if ends.split(" > ").any(|end| end.ends_with(".22") || end == "22") {
            continue;
        }
        if flags.contains('S') {
            let scale = number_behind(fields, "wscale ").unwrap_or(0) as u32;
            let advertised = Advertised { first_bytes: window, scale, most_bytes: 0 };
            found = Some((ends.to_string(), advertised));
        } else if let Some((known, advertised)) = &mut found
            && known == ends
            && !flags.contains('R')
        {
            advertised.most_bytes = advertised.most_bytes.max(window << advertised.scale);
        }
    }
    found.map(|(_, advertised)| advertised)
}

fn number_behind(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
