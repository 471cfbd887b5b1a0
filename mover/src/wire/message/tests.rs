//! Every message is encoded and decoded; the worst that can happen to one is to be refused.

use proptest::prelude::*;

use super::*;
use crate::wire::manifest::{ENDLESS_BYTES, EntryKind};
use base::attributes::Attributes;
use base::codec::{CodecTime, Coding, Compress, CompressionCounts, DecompressionTime};
use base::dscp::Dscp;
use base::job::Verified;
use base::listing::{Item, ItemKind, Sum};
use base::owners::OwnerRule;
use base::reason::{Change, Changes};
use base::secret::SharedSecret;
use base::settings::{Cut, DataSet, Delete, DigestKind, Lockstep, Moment, Pace};
use base::tally::{About, Tally};
use base::units::{Nanos, Rate, Tick};

fn entry(kind: EntryKind, size: u64, path: &[u8], link_target: &[u8]) -> Entry {
    Entry {
        kind,
        size,
        mtime_seconds: -5,
        mtime_nanos: 999_999_999,
        mode: 0o4755,
        path: path.to_vec(),
        link_target: link_target.to_vec(),
        ..Entry::default()
    }
}

/// An entry with everything that one can have.
fn archived() -> Entry {
    let xattrs = vec![(b"user.a".to_vec(), b"\0\xff".to_vec()), (b"user.b".to_vec(), vec![])];
    Entry {
        twin: 8,
        twin_bytes: ENDLESS_BYTES - 1,
        names_follow: true,
        sparse: true,
        attributes: Some(
            Attributes { uid: 1, gid: u32::MAX, xattrs, user: b"me".to_vec(), group: vec![] }
                .into(),
        ),
        sum: Some([9; 32]),
        ..entry(EntryKind::HardLink, 0, b"b", b"a")
    }
}

/// The end of a folder that was named as a source.
fn root() -> Entry {
    Entry { is_root: true, ..entry(EntryKind::Leave, 0, b"", b"") }
}

/// What a driver may ask of a source with these locations, or of a sink with this one.
fn open(role: Role, locations: Vec<Location>, origin: Option<Origin>) -> Message {
    let settings = Settings {
        rate: Some(Rate { bytes_per_second: 1e6 }),
        congestion: Some("cubic".into()),
        depth_source: Some(3),
        window_bytes: Some(65536),
        filters: vec!["*.o".into(), "!keep.o".into()],
        errors_max: Some(3),
        min_size: Some(1),
        max_size: Some(u64::MAX),
        newer: Some(Moment { seconds: -1, nanos: 999_999_999 }),
        delete: Delete::Excluded,
        delete_max: Some(5),
        backup_dir: Some("old/er".into()),
        numeric_ids: true,
        user_rules: OwnerRule::parse_all("a*:b,:5").unwrap(),
        pace: Pace::Fixed(Rate { bytes_per_second: 1e6 }),
        dscp: Dscp::from_code(46),
        lockstep: Some(Lockstep { every_bytes: 32 << 20, pause: Nanos::from_millis(250) }),
        compress: Compress::Always(Coding::Zstd(-5)),
        null_cycle_bytes: 8 << 20,
        streams_auto: true,
        ..Settings::default()
    };
    Message::Open(Box::new(Open {
        role,
        locations,
        settings,
        ports: Some((5000, 5100)),
        secret: SharedSecret([1; 32]),
        fingerprint: [2; 32],
        origin,
        window_bytes: 5,
        transfer: [3; 16],
        listed: true,
    }))
}

fn path_samples() -> Message {
    let none = PathSample::default();
    let first = PathSample { at: Tick(1), bytes_sent: 9, pace_max_bytes_per_s: u64::MAX, ..none };
    let second = PathSample { at: Tick(2), bytes_sent: 10, app_limited: true, ..first };
    Message::Samples { stream: 65_535, samples: vec![first, second] }
}

fn decompression_time() -> Message {
    let codec_time = |raw_bytes: u64| CodecTime { raw_bytes, spent: Nanos(2 * raw_bytes) };
    Message::DecompressionTime(DecompressionTime {
        by_codec: [codec_time(0), codec_time(1), codec_time(2), codec_time(u64::MAX / 2)],
        elapsed: Nanos(9),
        workers: 2,
    })
}

fn report() -> SideReport {
    let mut compression = CompressionCounts { compressed_bytes: 5, ..CompressionCounts::default() };
    compression.note(Coding::Zstd(-5), 9, 4);
    compression.note(Coding::Raw, 1, 1);
    SideReport {
        tally: Tally { requests: 1, bytes: 2, partial_returns: 3, compression, ..Tally::default() },
        cpu_user: Nanos(7),
        engine: "threads".into(),
        depth: 2,
        window_scale: Some(7),
        pace_bytes_per_s: Some(1 << 40),
        about: About {
            machine: "0123".into(),
            file_system: "ext4".into(),
            sink_file_system: String::new(),
            resident_percent: Some(50),
            model: "{}".into(),
        },
        ..SideReport::default()
    }
}

fn samples() -> Vec<Message> {
    let of_mirrors = vec![
        Message::Present { paths: vec![b"a/\xff".to_vec(), b"b".to_vec()] },
        Message::Deleted { paths: vec![b"c".to_vec()] },
        Message::NotDeleted { path: Vec::new(), fault: Fault::new(Class::SomeFailed, "many") },
    ];
    let limits = [Some(Rate { bytes_per_second: 5e6 }), None].map(|rate| Message::Limit { rate });
    let extra = vec![(4, ExtraSums { crc32c: Some([1, 2, 3, 4]), ..ExtraSums::default() })];
    let differing = vec![(5, Changes::of([Change::Size, Change::Owner]))];
    let ends = vec![
        Message::Extra { objects: extra },
        Message::Differing { objects: differing },
        Message::EndStream { stream: 3 },
    ];
    [samples_of_copies(), of_mirrors, limits.to_vec(), ends, samples_of_questions()].concat()
}

fn samples_of_questions() -> Vec<Message> {
    let receipt = ReceiptForm { shown: "sums".into(), is_bagit: true };
    let sum = Sum { files: 3, bytes: 1 << 40 };
    let item = Item {
        kind: ItemKind::Link,
        bytes: Some(5),
        mtime: Some(Moment { seconds: -1, nanos: 5 }),
        mode: Some(0o644),
        owner: Some(("me".into(), "us".into())),
        link_target: b"../\xff".to_vec(),
        below: Some(sum),
        ..Item::folder(b"a/\xff".to_vec())
    };
    let found = Verified { files: 1, bytes: 2, differing: 3, missing: 4, unreadable: 5 };
    let answers = [
        Answer::Items(vec![item, Item::folder(b"d".to_vec())]),
        Answer::Listed,
        Answer::Progress { found: sum, done: Sum::default() },
        Answer::Matches { path: b"a".to_vec(), bytes: 1, digest: Some("00".into()) },
        Answer::Differs { path: b"b".to_vec(), fault: Fault::new(Class::Corrupt, "no") },
        Answer::Verified { found, kinds: vec!["BLAKE3".into()] },
    ];
    let asks = [
        Message::Ask(Ask::List { path: "~/a".into(), sums: true }),
        Message::Ask(Ask::Verify { path: "b".into(), receipt }),
        Message::Piece { bytes: vec![1, 2], last: false },
        Message::Piece { bytes: Vec::new(), last: true },
    ];
    asks.into_iter().chain(answers.map(Message::Answer)).collect()
}

fn samples_of_copies() -> Vec<Message> {
    let origin = Origin { single: true, endless: false };
    let locations = vec![
        Location::Path("/a/b".into()),
        Location::Stdio,
        Location::Null { len: 1 },
        Location::Zero { len: 2 },
        Location::Random { len: 3, seed: 4 },
        Location::Endless,
        Location::Synthetic { set: DataSet::Runs, len: 5, seed: 6 },
        Location::EndlessSynthetic { set: DataSet::Text, seed: 7 },
    ];
    vec![
        Message::Hello { min: 1, max: 2, program: "datapump 0.1.0".into() },
        open(Role::Source, locations, None),
        open(Role::Sink, vec![Location::Stdio], Some(origin)),
        Message::Opened(Opened {
            fingerprint: [3; 32],
            port: 5000,
            addresses: vec!["127.0.0.1".into(), "::1".into()],
            origin: Some(Origin { single: false, endless: true }),
            window_bytes: 9,
            rename: Some(b"name".to_vec()),
            cut: Settings::default().cut(),
        }),
        Message::Cut(Cut { request_bytes: 4096, digest: DigestKind::Crc64 }),
        Message::HeldRanges { object: 8, ranges: vec![(0, 1), (4, 9)] },
        Message::Carry(Carries::First),
        Message::Carry(Carries::All),
        Message::Carry(Carries::NoMore),
        Message::Carried(vec![1, 2, 3]),
        Message::Offer {
            first: 7,
            entries: vec![
                entry(EntryKind::File, 5, b"a/\xff\n", b""),
                entry(EntryKind::Link, 0, b"l", b"../t"),
                entry(EntryKind::Directory, 0, b"d", b""),
                entry(EntryKind::Pipe, ENDLESS_BYTES, b"p", b""),
            ],
        },
        Message::Want {
            first: 7,
            wanted: vec![
                WantedRanges::All,
                WantedRanges::Nothing,
                WantedRanges::Rest(vec![(0, 5), (9, 10)]),
            ],
        },
        Message::Held { objects: vec![(3, Some([1; 32])), (4, None)] },
        Message::Lost { stream: 70_000 },
        Message::Doubt { stream: 2 },
        Message::Names { paths: vec![b"a/\xff".to_vec(), b"b".to_vec()], last: true },
        Message::Offer { first: 9, entries: vec![archived(), root()] },
        Message::OfferEnd { objects: 9, bytes: 10 },
        Message::Ack { ranges: vec![(0, 5), (7, 9)], bytes: 6 },
        Message::Finished { objects: vec![(1, Some([9; 32])), (2, None)] },
        Message::Failed { object: 3, fault: Fault::new(Class::NoSpace, "full") },
        Message::Failed { object: 4, fault: Fault::new(Class::Local, "no").from_other_side() },
        Message::Unoffered { path: b"x".to_vec(), fault: Fault::new(Class::Local, "no") },
        Message::PipeEnd { bytes: 11 },
        Message::Enough,
        Message::Warning { text: "careful".into() },
        Message::Report(Box::new(report())),
        Message::Stop(Fault::interrupted()),
        Message::Ping,
        Message::Kept { object: 4 },
        path_samples(),
        decompression_time(),
    ]
}

#[test]
fn there_and_back() {
    let mut codes = std::collections::BTreeSet::new();
    for message in samples() {
        let bytes = message.encode();
        let length = Message::length(bytes[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - 4);
        assert_eq!(Message::decode(&bytes[4..]).unwrap(), message);
        codes.insert(message.code());
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), (1..=37).collect::<Vec<_>>());
}

/// Framing in place makes the same bytes as encoding, and reading in place the same data.
#[test]
fn carried_data_in_place_is_the_same_message() {
    for data in [vec![], vec![7], vec![9; 70_000]] {
        let encoded = Message::Carried(data.clone()).encode();
        let mut framed = [vec![0; CARRIED_PREFIX_BYTES], data.clone()].concat();
        Message::frame_carried(&mut framed);
        assert_eq!(framed, encoded);
        assert_eq!(Message::carried_data(&encoded[4..]), Some(&data[..]));
    }
    assert_eq!(Message::carried_data(&Message::Ping.encode()[4..]), None);
    assert_eq!(Message::carried_data(b""), None);
}

#[test]
fn cut_short_or_grown_is_refused() {
    for message in samples() {
        let bytes = message.encode();
        if matches!(message, Message::Carried(_)) {
            continue; // its body is whatever is there
        }
        for cut in 4..bytes.len() {
            assert!(Message::decode(&bytes[4..cut]).is_err(), "{message:?} cut at {cut}");
        }
        let grown = [&bytes[4..], &[0]].concat();
        assert!(Message::decode(&grown).is_err(), "{message:?} with a byte more");
    }
}

#[test]
fn a_path_that_leaves_is_refused() {
    for path in [&b"../x"[..], b"/etc/passwd", b"a/../../b", b""] {
        let bytes =
            Message::Offer { first: 0, entries: vec![entry(EntryKind::File, 1, path, b"")] };
        assert!(Message::decode(&bytes.encode()[4..]).is_err(), "{}", path.escape_ascii());
    }
}

/// Only a folder may say that it is a source of its own.
#[test]
fn a_root_that_is_no_folder_is_refused() {
    let entries = vec![Entry { is_root: true, ..entry(EntryKind::File, 0, b"d", b"") }];
    let bytes = Message::Offer { first: 0, entries }.encode();
    assert!(Message::decode(&bytes[4..]).is_err());
}

/// A name of an owner is one of a user or group, and comes with its owner.
#[test]
fn names_of_owners_that_cannot_be_are_refused() {
    let message = |user: &[u8]| {
        let attributes = Attributes { user: user.to_vec(), ..Attributes::default() };
        let file = entry(EntryKind::File, 1, b"f", b"");
        let entries = vec![Entry { attributes: Some(attributes.into()), ..file }];
        Message::Offer { first: 0, entries }.encode()
    };
    for name in [&b"a:b"[..], b"a\0", b"a\n", &[b'a'; 256]] {
        assert!(Message::decode(&message(name)[4..]).is_err(), "{}", name.escape_ascii());
    }
    let fine = message(&[0xff; 255]);
    assert!(Message::decode(&fine[4..]).is_ok());
    let mut flags = message(b"a");
    let at = 4 + 1 + 8 + 2 + 1;
    assert_eq!(flags[at], 2 | 16, "attributes, and names");
    flags[at] = 16;
    assert!(Message::decode(&flags[4..]).is_err(), "names without an owner");
}

/// Settings that would lead out of the destination, or are no rules.
#[test]
fn settings_of_owners_and_backups_are_checked() {
    let message = |backup_dir: &str, rules: &str| {
        let opened = open(Role::Source, vec![Location::Stdio], None);
        let Message::Open(mut asked) = opened else { unreachable!() };
        asked.settings.backup_dir = Some(backup_dir.into());
        let bytes = Message::Open(asked).encode();
        let at = bytes.windows(7).position(|part| part == b"a*:b,:5").unwrap();
        [&bytes[..at], rules.as_bytes(), &bytes[at + 7..]].concat()
    };
    let cases = [
        ("old", "a*:b,:5", true),
        ("old", "a*:b,,5", false),
        ("old", "a*:b,b:", false),
        ("../old", "a*:b,:5", false),
        ("/old", "a*:b,:5", false),
        ("old/", "a*:b,:5", false),
    ];
    for (backup_dir, rules, is_good) in cases {
        let decoded = Message::decode(&message(backup_dir, rules)[4..]);
        assert_eq!(decoded.is_ok(), is_good, "{backup_dir} {rules}");
    }
}

/// What the fields of a message may say besides what its reader checks anyway.
#[test]
fn samples_that_cannot_be_are_refused() {
    let Message::Samples { samples, .. } = path_samples() else { unreachable!() };
    let message = |stream, samples| Message::Samples { stream, samples }.encode();
    let falling: Vec<PathSample> = samples.iter().rev().copied().collect();
    let mut announced = message(1, samples.clone());
    announced[9] = 3;
    let cases = [
        (message(65_536, samples.clone()), "a stream that never was"),
        (message(1, Vec::new()), "0 samples"),
        (message(1, falling), "a counter of it cannot be"),
        (announced, "it ends too early"),
    ];
    for (bytes, expect) in cases {
        let fault = Message::decode(&bytes[4..]).unwrap_err();
        assert!(fault.text.contains(expect) && fault.class == Class::Peer, "{expect}: {fault}");
    }
    let most = vec![samples[0]; base::limits::SAMPLES_MAX];
    assert!(Message::decode(&message(1, most)[4..]).is_ok());
}

proptest! {
    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn a_changed_byte_never_panics(pick: usize, at: usize, to: u8) {
        let all = samples();
        let mut bytes = all[pick % all.len()].encode();
        let at = 4 + at % (bytes.len() - 4);
        bytes[at] = to;
        let _ = Message::decode(&bytes[4..]);
    }
}
