//! The settings of a transfer, as Open has them.

use super::TEXT_BYTES_MAX;
use super::fields::{get_choice, get_list, get_way, is_request_size, put_way};
use crate::wire::manifest::path_is_safe;
use crate::wire::reader::{Reader, Writer};
use base::codec::{Coding, Compress};
use base::dscp::Dscp;
use base::extra::ExtraDigests;
use base::fault::Fault;
use base::limits::{
    DEPTH_MAX, FILTERS_MAX, MEMORY_BYTES_MIN, OWNER_RULES_BYTES_MAX, STREAMS_MAX, WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
};
use base::owners::OwnerRule;
use base::settings::{
    Delete, DigestKind, Direct, EngineChoice, Fsync, Links, Lockstep, Moment, Overwrite, Pace,
    PathSamples, Preallocate, Receive, Seal, Settings, SkipUnchanged, Verify,
};
use base::units::{Nanos, Rate};

/// From a tenth of a second to an hour.
const STALLS: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;

/// A limit of the rate, if there is one.
pub(super) fn put_rate(out: &mut Writer, rate: Option<Rate>) {
    out.option(rate, |out, rate| out.u64(rate.bytes_per_second as u64));
}

pub(super) fn get_rate(from: &mut Reader<'_>) -> Result<Option<Rate>, Fault> {
    let bytes_per_second = from.option(Reader::u64)?;
    match bytes_per_second {
        Some(0) => Err(Fault::peer("the peer sent a rate of nothing")),
        other => Ok(other.map(|bytes| Rate { bytes_per_second: bytes as f64 })),
    }
}

pub(super) fn put_settings(out: &mut Writer, settings: &Settings) {
    out.u16(settings.streams);
    out.flag(settings.streams_auto);
    out.u32(settings.request_bytes);
    out.option(settings.depth_source, Writer::u16);
    out.option(settings.depth_sink, Writer::u16);
    out.option(settings.window_bytes, Writer::u32);
    out.option(settings.congestion.as_deref(), |out, name| out.text(name, TEXT_BYTES_MAX));
    put_rate(out, settings.rate);
    out.u8(settings.engine as u8);
    out.u8(settings.direct as u8);
    out.u8(settings.receive as u8);
    out.u8(settings.seal as u8);
    out.u8(settings.digest as u8);
    out.u8(settings.verify as u8);
    out.u8(settings.digest_also.code());
    out.u8(settings.fsync as u8);
    out.u8(settings.overwrite as u8);
    out.u64(settings.memory_bytes);
    out.u8(settings.preallocate as u8);
    out.flag(settings.preserve);
    out.flag(settings.archive);
    out.flag(settings.numeric_ids);
    for rules in [&settings.user_rules, &settings.group_rules] {
        out.text(&OwnerRule::typed_all(rules), OWNER_RULES_BYTES_MAX);
    }
    out.flag(settings.recursive);
    out.u8(settings.links as u8);
    out.u16(settings.filters.len() as u16);
    settings.filters.iter().for_each(|line| out.text(line, TEXT_BYTES_MAX));
    out.option(settings.min_size, Writer::u64);
    out.option(settings.max_size, Writer::u64);
    out.option(settings.newer, |out, newer| {
        out.i64(newer.seconds);
        out.u32(newer.nanos);
    });
    out.u8(settings.skip_unchanged as u8);
    out.u8(settings.delete as u8);
    out.option(settings.delete_max, Writer::u64);
    out.option(settings.backup_dir.as_deref(), |out, path| out.text(path, TEXT_BYTES_MAX));
    out.flag(settings.dry_run);
    out.flag(settings.compare);
    out.option(settings.errors_max, Writer::u32);
    out.flag(settings.fresh);
    out.flag(settings.mkpath);
    out.flag(settings.names_apart);
    out.u64(settings.stall.0);
    out.u8(settings.path_samples as u8);
    put_pace(out, settings.pace);
    out.option(settings.dscp, |out, dscp| out.u8(dscp.code()));
    out.option(settings.lockstep, |out, lockstep| {
        out.u64(lockstep.every_bytes);
        out.u64(lockstep.pause.0);
    });
    put_compress(out, settings.compress);
    out.u32(settings.null_cycle_bytes);
}

fn put_compress(out: &mut Writer, compress: Compress) {
    match compress {
        Compress::Off => out.u8(0),
        Compress::Always(coding) => {
            out.u8(1);
            put_way(out, coding);
        }
        Compress::Auto => out.u8(2),
    }
}

fn get_compress(from: &mut Reader<'_>) -> Result<Compress, Fault> {
    match from.u8()? {
        0 => Ok(Compress::Off),
        1 => match get_way(from)? {
            Coding::Raw => Err(Fault::peer("the peer asked to compress without a codec")),
            coding => Ok(Compress::Always(coding)),
        },
        2 => Ok(Compress::Auto),
        other => Err(Fault::peer(format!("the peer sent an unknown compression {other}"))),
    }
}

/// Rules for owners as they are typed; empty where there are none.
fn get_rules(from: &mut Reader<'_>) -> Result<Vec<OwnerRule>, Fault> {
    let text = from.text(OWNER_RULES_BYTES_MAX)?;
    match text.is_empty() {
        true => Ok(Vec::new()),
        false => OwnerRule::parse_all(&text)
            .map_err(|_| Fault::peer("the peer sent rules for owners that are none")),
    }
}

fn get_backup_dir(from: &mut Reader<'_>) -> Result<String, Fault> {
    let path = from.text(TEXT_BYTES_MAX)?;
    match path_is_safe(path.as_bytes()) {
        true => Ok(path),
        false => Err(Fault::peer("the peer asked for backups outside of the destination")),
    }
}

fn put_pace(out: &mut Writer, pace: Pace) {
    match pace {
        Pace::Off => out.u8(0),
        Pace::Auto => out.u8(1),
        Pace::Scavenger => out.u8(3),
        Pace::Fixed(rate) => {
            out.u8(2);
            out.u64(rate.bytes_per_second as u64);
        }
    }
}

fn get_pace(from: &mut Reader<'_>) -> Result<Pace, Fault> {
    match from.u8()? {
        0 => Ok(Pace::Off),
        1 => Ok(Pace::Auto),
        3 => Ok(Pace::Scavenger),
        2 => Ok(Pace::Fixed(Rate { bytes_per_second: from.u64()? as f64 })),
        other => Err(Fault::peer(format!("the peer sent an unknown pace {other}"))),
    }
}

fn get_dscp(from: &mut Reader<'_>) -> Result<Dscp, Fault> {
    let code = from.u8()?;
    Dscp::from_code(code)
        .ok_or_else(|| Fault::peer(format!("the peer sent an unknown code point {code}")))
}

pub(super) fn get_settings(from: &mut Reader<'_>) -> Result<Settings, Fault> {
    let settings = Settings {
        streams: from.u16()?,
        streams_auto: from.flag()?,
        request_bytes: from.u32()?,
        depth_source: from.option(Reader::u16)?,
        depth_sink: from.option(Reader::u16)?,
        window_bytes: from.option(Reader::u32)?,
        congestion: from.option(|from| from.text(TEXT_BYTES_MAX))?,
        rate: get_rate(from)?,
        engine: get_choice(from, EngineChoice::from_code)?,
        direct: get_choice(from, Direct::from_code)?,
        receive: get_choice(from, Receive::from_code)?,
        seal: get_choice(from, Seal::from_code)?,
        digest: get_choice(from, DigestKind::from_code)?,
        verify: get_choice(from, Verify::from_code)?,
        digest_also: get_choice(from, ExtraDigests::from_code)?,
        fsync: get_choice(from, Fsync::from_code)?,
        overwrite: get_choice(from, Overwrite::from_code)?,
        memory_bytes: from.u64()?,
        preallocate: get_choice(from, Preallocate::from_code)?,
        preserve: from.flag()?,
        archive: from.flag()?,
        numeric_ids: from.flag()?,
        user_rules: get_rules(from)?,
        group_rules: get_rules(from)?,
        recursive: from.flag()?,
        links: get_choice(from, Links::from_code)?,
        filters: get_list(from, FILTERS_MAX, |from| from.text(TEXT_BYTES_MAX))?,
        min_size: from.option(Reader::u64)?,
        max_size: from.option(Reader::u64)?,
        newer: from.option(|from| Ok(Moment { seconds: from.i64()?, nanos: from.u32()? }))?,
        skip_unchanged: get_choice(from, SkipUnchanged::from_code)?,
        delete: get_choice(from, Delete::from_code)?,
        delete_max: from.option(Reader::u64)?,
        backup_dir: from.option(get_backup_dir)?,
        dry_run: from.flag()?,
        compare: from.flag()?,
        errors_max: from.option(Reader::u32)?,
        fresh: from.flag()?,
        mkpath: from.flag()?,
        names_apart: from.flag()?,
        stall: Nanos(from.u64()?),
        path_samples: get_choice(from, PathSamples::from_code)?,
        pace: get_pace(from)?,
        dscp: from.option(get_dscp)?,
        lockstep: from
            .option(|from| Ok(Lockstep { every_bytes: from.u64()?, pause: Nanos(from.u64()?) }))?,
        compress: get_compress(from)?,
        null_cycle_bytes: from.u32()?,
    };
    let window_range = WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX;
    let depth_fits =
        |depth: Option<u16>| depth.is_none_or(|depth| (1..=DEPTH_MAX).contains(&depth));
    let fits = (1..=STREAMS_MAX).contains(&settings.streams)
        && is_request_size(settings.request_bytes)
        && settings.memory_bytes >= MEMORY_BYTES_MIN
        && settings.window_bytes.is_none_or(|window| window_range.contains(&window))
        && !matches!(settings.pace, Pace::Fixed(rate) if rate.bytes_per_second < 1.0)
        && settings.lockstep.is_none_or(|lockstep| lockstep.fits())
        && STALLS.contains(&settings.stall.0)
        && depth_fits(settings.depth_source)
        && depth_fits(settings.depth_sink);
    match fits {
        true => Ok(settings),
        false => Err(Fault::peer("the peer asked for settings outside their ranges")),
    }
}
