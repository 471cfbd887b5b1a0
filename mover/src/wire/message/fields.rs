//! The fields that more than one message has, or that are too many for one line.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{
    FINISHED_MAX, Open, Opened, Origin, RANGES_MAX, Role, TEXT_BYTES_MAX, WantedRanges,
    fault_class, settings,
};
use crate::wire::reader::{Reader, Writer};
use base::codec::{Codec, CodecTime, Coding, CompressionCounts, DecompressionTime};
use base::extra::ExtraSums;
use base::fault::Fault;
use base::job::{FreeSpace, Location};
use base::label::Sum;
use base::limits::{
    MODEL_BYTES_MAX, NAME_BYTES_MAX, OFFER_ENTRIES_MAX, PATH_BYTES_MAX, REQUEST_BYTES_MAX,
    REQUEST_BYTES_MIN, REQUEST_BYTES_STEP, SAMPLES_MAX,
};
use base::packed;
use base::path::PathSample;
use base::reason::Changes;
use base::secret::SharedSecret;
use base::settings::{Cut, DataSet, DigestKind};
use base::tally::{About, SideReport, Tally};
use base::units::Nanos;

const PLACES_MAX: usize = 1024;
const ADDRESSES_MAX: usize = 32;

pub(crate) fn get_list<T>(
    from: &mut Reader<'_>,
    max: usize,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let count = usize::from(from.u16()?);
    if count > max {
        return Err(Fault::peer(format!(
            "the peer sent a list of {count} where {max} are allowed"
        )));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(item(from)?);
    }
    Ok(list)
}

/// Where a fault happened is said as its sender sees it.
pub(crate) fn put_fault(out: &mut Writer, fault: &Fault) {
    out.u8(fault.class.exit_code());
    out.flag(fault.is_far);
    out.text(&fault.text, TEXT_BYTES_MAX);
}

pub(crate) fn get_fault(from: &mut Reader<'_>) -> Result<Fault, Fault> {
    let class = fault_class(from.u8()?)?;
    let is_far = from.flag()?;
    Ok(Fault { is_far, ..Fault::new(class, from.text(TEXT_BYTES_MAX)?) })
}

pub(crate) fn put_ranges(out: &mut Writer, ranges: &[(u64, u64)]) {
    out.u16(ranges.len() as u16);
    for (start, end) in ranges {
        out.u64(*start);
        out.u64(*end);
    }
}

pub(crate) fn get_ranges(from: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Fault> {
    get_list(from, RANGES_MAX, |from| {
        let (start, end) = (from.u64()?, from.u64()?);
        match start < end {
            true => Ok((start, end)),
            false => Err(Fault::peer("the peer sent an empty range")),
        }
    })
}

pub(crate) fn put_paths(out: &mut Writer, paths: &[Vec<u8>]) {
    out.u16(paths.len() as u16);
    paths.iter().for_each(|path| out.bytes(path));
}

pub(crate) fn get_paths(from: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Fault> {
    get_list(from, OFFER_ENTRIES_MAX, |from| Ok(from.bytes(PATH_BYTES_MAX)?.to_vec()))
}

pub(crate) fn put_wanted_ranges(out: &mut Writer, ranges: &WantedRanges) {
    match ranges {
        WantedRanges::Nothing => out.u8(0),
        WantedRanges::All => out.u8(1),
        WantedRanges::Rest(held) => {
            out.u8(2);
            put_ranges(out, held);
        }
    }
}

pub(crate) fn get_wanted_ranges(from: &mut Reader<'_>) -> Result<WantedRanges, Fault> {
    match from.u8()? {
        0 => Ok(WantedRanges::Nothing),
        1 => Ok(WantedRanges::All),
        2 => Ok(WantedRanges::Rest(get_ranges(from)?)),
        other => Err(Fault::peer(format!("the peer sent unknown wanted ranges {other}"))),
    }
}

pub(crate) fn put_finished(out: &mut Writer, objects: &[(u64, Option<Sum>)]) {
    out.u16(objects.len() as u16);
    for (object, sum) in objects {
        out.u64(*object);
        out.option(*sum, |out, sum| out.raw(&sum));
    }
}

pub(crate) fn get_finished(from: &mut Reader<'_>) -> Result<Vec<(u64, Option<Sum>)>, Fault> {
    get_list(from, FINISHED_MAX, |from| Ok((from.u64()?, from.option(|from| from.array())?)))
}

pub(crate) fn put_extra(out: &mut Writer, objects: &[(u64, ExtraSums)]) {
    out.u16(objects.len() as u16);
    for (object, sums) in objects {
        out.u64(*object);
        out.option(sums.adler32, |out, sum| out.raw(&sum));
        out.option(sums.crc32c, |out, sum| out.raw(&sum));
        out.option(sums.md5, |out, sum| out.raw(&sum));
        out.option(sums.sha256, |out, sum| out.raw(&sum));
    }
}

pub(crate) fn get_extra(from: &mut Reader<'_>) -> Result<Vec<(u64, ExtraSums)>, Fault> {
    get_list(from, FINISHED_MAX, |from| {
        let object = from.u64()?;
        let sums = ExtraSums {
            adler32: from.option(|from| from.array())?,
            crc32c: from.option(|from| from.array())?,
            md5: from.option(|from| from.array())?,
            sha256: from.option(|from| from.array())?,
        };
        Ok((object, sums))
    })
}

pub(crate) fn put_totals(out: &mut Writer, objects: u64, bytes: u64) {
    out.u64(objects);
    out.u64(bytes);
}

pub(crate) fn put_differing(out: &mut Writer, objects: &[(u64, Changes)]) {
    out.u16(objects.len() as u16);
    for (object, changes) in objects {
        out.u64(*object);
        out.u8(changes.code());
    }
}

pub(crate) fn get_differing(from: &mut Reader<'_>) -> Result<Vec<(u64, Changes)>, Fault> {
    get_list(from, FINISHED_MAX, |from| Ok((from.u64()?, get_choice(from, Changes::from_code)?)))
}

pub(crate) fn put_open(out: &mut Writer, open: &Open) {
    out.u8(open.role as u8);
    out.u16(open.locations.len() as u16);
    open.locations.iter().for_each(|location| put_location(out, location));
    settings::put_settings(out, &open.settings);
    out.option(open.ports, |out, (low, high)| {
        out.u16(low);
        out.u16(high);
    });
    out.raw(&open.secret.0);
    out.raw(&open.fingerprint);
    put_origin(out, open.origin);
    out.u64(open.window_bytes);
    out.raw(&open.transfer);
    out.flag(open.listed);
}

pub(crate) fn get_open(from: &mut Reader<'_>) -> Result<Open, Fault> {
    let role = match from.u8()? {
        1 => Role::Source,
        2 => Role::Sink,
        other => return Err(Fault::peer(format!("the peer sent an unknown role {other}"))),
    };
    let open = Open {
        role,
        locations: get_list(from, PLACES_MAX, get_location)?,
        settings: settings::get_settings(from)?,
        ports: from.option(|from| Ok((from.u16()?, from.u16()?)))?,
        secret: SharedSecret(from.array()?),
        fingerprint: from.array()?,
        origin: get_origin(from)?,
        window_bytes: from.u64()?,
        transfer: from.array()?,
        listed: from.flag()?,
    };
    let places_fit = match role {
        Role::Source => !open.locations.is_empty() && open.origin.is_none(),
        Role::Sink => open.locations.len() == 1 && open.origin.is_some(),
    };
    match places_fit {
        true => Ok(open),
        false => Err(Fault::peer("the peer asked for a transfer without a source or a target")),
    }
}

pub(crate) fn put_opened(out: &mut Writer, opened: &Opened) {
    out.raw(&opened.fingerprint);
    out.u16(opened.port);
    out.u16(opened.addresses.len() as u16);
    opened.addresses.iter().for_each(|address| out.text(address, TEXT_BYTES_MAX));
    put_origin(out, opened.origin);
    out.u64(opened.window_bytes);
    out.option(opened.rename.as_deref(), |out, name| out.bytes(name));
    put_cut(out, opened.cut);
}

pub(crate) fn get_opened(from: &mut Reader<'_>) -> Result<Opened, Fault> {
    Ok(Opened {
        fingerprint: from.array()?,
        port: from.u16()?,
        addresses: get_list(from, ADDRESSES_MAX, |from| from.text(TEXT_BYTES_MAX))?,
        origin: get_origin(from)?,
        window_bytes: from.u64()?,
        rename: from.option(|from| Ok(from.bytes(NAME_BYTES_MAX)?.to_vec()))?,
        cut: get_cut(from)?,
    })
}

pub(crate) fn put_cut(out: &mut Writer, cut: Cut) {
    out.u32(cut.request_bytes);
    out.u8(cut.digest as u8);
}

pub(crate) fn get_cut(from: &mut Reader<'_>) -> Result<Cut, Fault> {
    let request_bytes = from.u32()?;
    let cut = Cut { request_bytes, digest: get_choice(from, DigestKind::from_code)? };
    match is_request_size(request_bytes) {
        true => Ok(cut),
        false => Err(Fault::peer("the peer cuts objects into requests that cannot be")),
    }
}

pub(super) fn is_request_size(bytes: u32) -> bool {
    (REQUEST_BYTES_MIN..=REQUEST_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(REQUEST_BYTES_STEP)
}

fn put_origin(out: &mut Writer, origin: Option<Origin>) {
    out.option(origin, |out, origin| {
        out.flag(origin.single);
        out.flag(origin.endless);
    });
}

fn get_origin(from: &mut Reader<'_>) -> Result<Option<Origin>, Fault> {
    from.option(|from| Ok(Origin { single: from.flag()?, endless: from.flag()? }))
}

fn put_location(out: &mut Writer, location: &Location) {
    match location {
        Location::Path(path) => {
            out.u8(1);
            out.bytes(path.as_os_str().as_bytes());
        }
        Location::Stdio => out.u8(2),
        Location::Null { len } => {
            out.u8(3);
            out.u64(*len);
        }
        Location::Zero { len } => {
            out.u8(4);
            out.u64(*len);
        }
        Location::Random { len, seed } => {
            out.u8(5);
            out.u64(*len);
            out.u64(*seed);
        }
        Location::Endless => out.u8(6),
        Location::Synthetic { set, len, seed } => {
            out.u8(7);
            out.u8(*set as u8);
            out.u64(*len);
            out.u64(*seed);
        }
        Location::EndlessSynthetic { set, seed } => {
            out.u8(8);
            out.u8(*set as u8);
            out.u64(*seed);
        }
        // Reached from the host of the user alone: no far side is asked for one.
        Location::Object(_) => out.u8(0),
    }
}

fn get_location(from: &mut Reader<'_>) -> Result<Location, Fault> {
    Ok(match from.u8()? {
        1 => {
            let path = from.bytes(PATH_BYTES_MAX)?.to_vec();
            Location::Path(PathBuf::from(OsString::from_vec(path)))
        }
        2 => Location::Stdio,
        3 => Location::Null { len: from.u64()? },
        4 => Location::Zero { len: from.u64()? },
        5 => Location::Random { len: from.u64()?, seed: from.u64()? },
        6 => Location::Endless,
        7 => {
            let set = get_choice(from, DataSet::from_code)?;
            Location::Synthetic { set, len: from.u64()?, seed: from.u64()? }
        }
        8 => Location::EndlessSynthetic {
            set: get_choice(from, DataSet::from_code)?,
            seed: from.u64()?,
        },
        other => {
            return Err(Fault::peer(format!("the peer named a place of unknown kind {other}")));
        }
    })
}

pub(super) fn put_way(out: &mut Writer, coding: Coding) {
    out.u8(coding.codec() as u8);
    out.u8(coding.level().to_le_bytes()[0]);
}

pub(super) fn get_way(from: &mut Reader<'_>) -> Result<Coding, Fault> {
    let (codec, level) = (from.u8()?, i8::from_le_bytes([from.u8()?]));
    Codec::from_code(codec).and_then(|codec| Coding::of(codec, level)).ok_or_else(|| {
        Fault::peer(format!("the peer named an unknown codec {codec} at level {level}"))
    })
}

fn put_compression_counts(out: &mut Writer, counts: &CompressionCounts) {
    out.u64(counts.compressed_bytes);
    let used = counts.by_coding.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
    out.u16(used.clone().count() as u16);
    for (location, bytes) in used {
        put_way(out, Coding::at(location));
        out.u64(*bytes);
    }
}

fn get_compression_counts(from: &mut Reader<'_>) -> Result<CompressionCounts, Fault> {
    let mut counts =
        CompressionCounts { compressed_bytes: from.u64()?, ..CompressionCounts::default() };
    for (coding, bytes) in get_list(from, Coding::COUNT, |from| Ok((get_way(from)?, from.u64()?)))?
    {
        let location = &mut counts.by_coding[coding.index()];
        if bytes == 0 || std::mem::replace(location, bytes) > 0 {
            return Err(Fault::peer("the peer counted a coding twice, or for nothing"));
        }
    }
    Ok(counts)
}

pub(super) fn get_choice<T>(
    from: &mut Reader<'_>,
    parse: impl Fn(u8) -> Option<T>,
) -> Result<T, Fault> {
    let code = from.u8()?;
    parse(code).ok_or_else(|| Fault::peer(format!("the peer sent an unknown choice {code}")))
}

/// One entry for each codec, in the order of their codes.
pub(crate) fn put_decompression_time(out: &mut Writer, time: &DecompressionTime) {
    for codec_time in &time.by_codec {
        out.u64(codec_time.raw_bytes);
        out.u64(codec_time.spent.0);
    }
    out.u64(time.elapsed.0);
    out.u16(time.workers);
}

pub(crate) fn get_decompression_time(from: &mut Reader<'_>) -> Result<DecompressionTime, Fault> {
    let mut time = DecompressionTime::default();
    for codec_time in &mut time.by_codec {
        *codec_time = CodecTime { raw_bytes: from.u64()?, spent: Nanos(from.u64()?) };
    }
    time.elapsed = Nanos(from.u64()?);
    time.workers = from.u16()?;
    Ok(time)
}

/// Each message has a series of its own: its first sample is complete.
pub(crate) fn put_samples(out: &mut Writer, stream: u32, samples: &[PathSample]) {
    assert!(samples.len() <= SAMPLES_MAX, "{} samples in one message", samples.len());
    out.u32(stream);
    out.u16(samples.len() as u16);
    out.raw(&packed::pack(samples));
}

pub(crate) fn get_samples(from: &mut Reader<'_>) -> Result<(u32, Vec<PathSample>), Fault> {
    let stream = from.u32()?;
    if stream > u32::from(u16::MAX) {
        return Err(Fault::peer("the peer sent samples of a stream that never was"));
    }
    let count = usize::from(from.u16()?);
    if !(1..=SAMPLES_MAX).contains(&count) {
        return Err(Fault::peer(format!(
            "the peer sent {count} samples of a path where 1 to {SAMPLES_MAX} are allowed"
        )));
    }
    let samples = packed::unpack(from.rest(), count).map_err(|why| {
        Fault::peer(format!("the peer sent samples of a path that cannot be: {why}"))
    })?;
    Ok((stream, samples))
}

pub(crate) fn put_report(out: &mut Writer, report: &SideReport) {
    let tally = &report.tally;
    for value in [
        tally.requests,
        tally.bytes,
        tally.wire_bytes,
        tally.life.fill.0,
        tally.life.pass.0,
        tally.life.gate.0,
        tally.life.drain.0,
    ] {
        out.u64(value);
    }
    tally.stages.iter().for_each(|stage| out.u64(stage.0));
    for value in [
        tally.calls,
        tally.partial_returns,
        tally.partial_bytes,
        tally.starts,
        report.cpu_user.0,
        report.cpu_system.0,
        report.peak_memory_bytes,
        report.planned_memory_bytes,
        report.window_seen_bytes,
        report.excluded,
    ] {
        out.u64(value);
    }
    out.option(report.room.free_bytes, Writer::u64);
    out.u64(report.room.missing_bytes);
    out.option(report.window_scale, Writer::u8);
    out.option(report.pace_bytes_per_s, Writer::u64);
    put_compression_counts(out, &tally.compression);
    out.u16(report.depth);
    out.text(&report.engine, TEXT_BYTES_MAX);
    out.text(&report.congestion, TEXT_BYTES_MAX);
    let about = &report.about;
    out.text(&about.machine, NAME_BYTES_MAX);
    out.text(&about.file_system, NAME_BYTES_MAX);
    out.option(about.resident_percent, Writer::u8);
    // A part of a model is of no use.
    let model = if about.model.len() <= MODEL_BYTES_MAX { about.model.as_str() } else { "" };
    out.text(model, MODEL_BYTES_MAX);
}

pub(crate) fn get_report(from: &mut Reader<'_>) -> Result<SideReport, Fault> {
    let mut tally = Tally {
        requests: from.u64()?,
        bytes: from.u64()?,
        wire_bytes: from.u64()?,
        ..Tally::default()
    };
    tally.life.fill = Nanos(from.u64()?);
    tally.life.pass = Nanos(from.u64()?);
    tally.life.gate = Nanos(from.u64()?);
    tally.life.drain = Nanos(from.u64()?);
    for stage in &mut tally.stages {
        *stage = Nanos(from.u64()?);
    }
    tally.calls = from.u64()?;
    tally.partial_returns = from.u64()?;
    tally.partial_bytes = from.u64()?;
    tally.starts = from.u64()?;
    let report = SideReport {
        tally,
        cpu_user: Nanos(from.u64()?),
        cpu_system: Nanos(from.u64()?),
        peak_memory_bytes: from.u64()?,
        planned_memory_bytes: from.u64()?,
        window_seen_bytes: from.u64()?,
        excluded: from.u64()?,
        room: FreeSpace { free_bytes: from.option(Reader::u64)?, missing_bytes: from.u64()? },
        window_scale: from.option(Reader::u8)?,
        pace_bytes_per_s: from.option(Reader::u64)?,
        ..SideReport::default()
    };
    Ok(SideReport {
        tally: Tally { compression: get_compression_counts(from)?, ..tally },
        depth: from.u16()?,
        engine: from.text(TEXT_BYTES_MAX)?,
        congestion: from.text(TEXT_BYTES_MAX)?,
        about: About {
            machine: from.text(NAME_BYTES_MAX)?,
            file_system: from.text(NAME_BYTES_MAX)?,
            sink_file_system: String::new(),
            resident_percent: from.option(Reader::u8)?,
            model: from.text(MODEL_BYTES_MAX)?,
        },
        ..report
    })
}
