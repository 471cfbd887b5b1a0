//! Measures how fast given bytes are compressed and decompressed, here and by common tools.

use std::io::{Read, Seek, Write};
use std::process::{Command, Stdio};

use crate::measure::speed::{self, Speed};
use analysis::study::compression::{CodingSpeed, Findings, Tool};
use base::codec::Coding;
use base::fault::{Class, Fault};
use base::job::Location;
use base::units::Nanos;
use mover::io::clock;
use mover::pump::watch::Watch;

/// What to measure of each source.
#[derive(Clone, Debug)]
pub struct Plan {
    pub codings: Vec<Coding>,
    pub payload_bytes: u32,
    /// Time for each coding.
    pub each: Nanos,
    /// Bytes of a source that are read.
    pub bytes_max: u64,
}

/// Measures one source; `watch` can stop it between two codings.
pub fn study(
    name: &str,
    location: &Location,
    plan: &Plan,
    watch: &Watch,
) -> Result<Findings, Fault> {
    let bytes = speed::load(location, plan.bytes_max, plan.payload_bytes)?;
    let mut findings = Findings {
        source: name.to_string(),
        bytes: bytes.len() as u64,
        payload_bytes: plan.payload_bytes,
        codings: Vec::new(),
        tools: Vec::new(),
    };
    for coding in &plan.codings {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        let speed = speed::measure(*coding, &bytes, plan.payload_bytes, plan.each)?;
        findings.codings.push(compressed(&speed));
    }
    for words in TOOLS {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        findings.tools.extend(tool(words, &bytes)?);
    }
    Ok(findings)
}

/// The speed of a coding, in rates.
fn compressed(speed: &Speed) -> CodingSpeed {
    let rate = |spent: Nanos| speed.raw_bytes as f64 / spent.seconds().max(1e-9);
    CodingSpeed {
        coding: speed.coding.typed(),
        ratio: speed.raw_bytes as f64 / speed.compressed_bytes.max(1) as f64,
        compress_bytes_per_s: rate(speed.compress),
        decompress_bytes_per_s: (speed.decompress.0 > 0).then(|| rate(speed.decompress)),
    }
}

/// The elapsed time of a program on these bytes, less the time to start it; `None` where it is not
/// installed.
fn tool(words: &[&str], bytes: &[u8]) -> Result<Option<Tool>, Fault> {
    let Some((compressed_bytes, spent)) = run(words, bytes)? else { return Ok(None) };
    let mut start = spent;
    for _ in 0..STARTS {
        if let Some((_, spent)) = run(words, &[])? {
            start = start.min(spent);
        }
    }
    let compression = Nanos(spent.0 - start.0);
    let is_known = compression > start;
    Ok(Some(Tool {
        command: words.join(" "),
        ratio: bytes.len() as f64 / compressed_bytes.max(1) as f64,
        compress_bytes_per_s: is_known.then(|| bytes.len() as f64 / compression.seconds()),
    }))
}

/// Pipes these bytes through a program: how many come out, and the elapsed time.
fn run(words: &[&str], bytes: &[u8]) -> Result<Option<(u64, Nanos)>, Fault> {
    let fault = |error| Fault::system("run a program to compress data", &error);
    let mut file = tempfile::tempfile().map_err(fault)?;
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(fault)?;
    let begun = clock::now();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Ok(None) };
    let mut out = child.stdout.take().expect("it is piped");
    let mut room = vec![0; 1 << 16];
    let mut compressed_bytes = 0_u64;
    loop {
        match out.read(&mut room).map_err(fault)? {
            0 => break,
            count => compressed_bytes += count as u64,
        }
    }
    let status = child.wait().map_err(fault)?;
    let spent = clock::now().since(begun);
    if !status.success() {
        let text = format!("'{}' failed on its input", words.join(" "));
        return Err(Fault::new(Class::Local, text));
    }
    Ok(Some((compressed_bytes, spent)))
}

const TOOLS: &[&[&str]] = &[
    &["gzip", "-1", "-c"],
    &["gzip", "-6", "-c"],
    &["gzip", "-9", "-c"],
    &["zstd", "-1", "-q", "-c", "--single-thread"],
    &["zstd", "-3", "-q", "-c", "--single-thread"],
    &["zstd", "-9", "-q", "-c", "--single-thread"],
];

const STARTS: usize = 3;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_left_out() {
        assert_eq!(tool(&["datapump-no-such-program"], b"bytes").unwrap(), None);
        assert!(tool(&["false"], b"bytes").is_err());
        let seen = tool(&["cat"], &[7; 100_000]).unwrap().unwrap();
        assert_eq!(seen.ratio, 1.0);
    }

    /// A program that starts slowly does not compress slowly.
    #[test]
    fn the_start_of_a_program_is_not_compression() {
        let seen = tool(&["sh", "-c", "sleep 0.05; cat"], &[7; 1000]).unwrap().unwrap();
        assert_eq!(seen.compress_bytes_per_s, None, "{seen:?}");
    }
}
