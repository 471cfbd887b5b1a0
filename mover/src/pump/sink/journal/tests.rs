//! A journal, cut and damaged in every way.

use super::*;
use crate::io::store::UploadedPart;
use crate::io::volume::READ_THROUGH;
use crate::work::digest::nodes_of;

const TRANSFER: TransferId = [7; 16];

fn origin(path: &[u8], size: u64) -> Origin {
    let mtime = Mtime { seconds: -1, nanos: 2 };
    Origin { path: path.to_vec(), size, mtime, digest: DigestKind::Crc64 }
}

fn made(inode: u64) -> Identity {
    Identity { inode, owner: 3, born: Some(Mtime { seconds: 5, nanos: 6 }) }
}

fn node(offset: u64, len: u64) -> Node {
    Node { offset, len, sum: [3; 32] }
}

fn have(file: u32, from: u64, to: u64) -> Record {
    Record::Have { file, ranges: vec![(from, to)], nodes: vec![node(from, to - from)] }
}

fn part(tag: &str) -> UploadedPart {
    UploadedPart { len: 40, sum: 7, tag: tag.into() }
}

fn samples() -> Vec<Record> {
    vec![
        Record::Open { transfer: TRANSFER },
        Record::Begin {
            file: 0,
            origin: origin(b"a/\xff", 100),
            request_bytes: 4096,
            made: made(9),
        },
        have(0, 0, 40),
        Record::Flushed { file: 0 },
        have(0, 60, 100),
        Record::Done {
            files: vec![([1; 16], Some((DigestKind::Crc64, [2; 32]))), ([4; 16], None)],
        },
        Record::Begin { file: 1, origin: origin(b"b", 50), request_bytes: 4096, made: made(10) },
        have(1, 0, 50),
        Record::Drop { file: 1 },
        Record::Folder { path: b"".to_vec(), inode: 7 },
        Record::Folder { path: b"a".to_vec(), inode: 0 },
        Record::Upload { file: 0, id: "id".into() },
        Record::Parts { file: 0, parts: vec![(0, part("a")), (60, part("b"))] },
        Record::Parts { file: 0, parts: vec![(60, part("c"))] },
        Record::Completing { file: 0 },
    ]
}

fn replayed(bytes: &[u8]) -> Replay {
    let mut replay = Replay::default();
    replay.take(bytes, &TRANSFER);
    replay
}

#[test]
fn what_was_said_is_known() {
    let bytes: Vec<u8> = samples().iter().flat_map(Record::encode).collect();
    let replay = replayed(&bytes);
    assert_eq!(replay.sound_bytes, bytes.len() as u64);
    let partials: Vec<&Partial> = replay.partials().collect();
    let [only] = &partials[..] else { panic!("{partials:?}") };
    assert_eq!(only.flushed.ranges.ranges().collect::<Vec<_>>(), [(0, 40)]);
    assert_eq!(only.written.nodes, [node(60, 40)]);
    assert_eq!(replay.done.len(), 2);
    assert!(only.is_completing);
    let upload = only.upload.as_ref().unwrap();
    assert_eq!(upload.id, "id");
    assert_eq!(upload.parts, [(0, part("a")), (60, part("c"))].into(), "the later one counts");
}

/// Cut anywhere, or with any bit flipped, it says what its valid front says, and no more.
#[test]
fn a_damaged_journal_costs_time_only() {
    let records: Vec<Vec<u8>> = samples().iter().map(Record::encode).collect();
    let bytes = records.concat();
    let mut ends = vec![0];
    ends.extend(records.iter().scan(0, |at, record| {
        *at += record.len();
        Some(*at)
    }));
    for len in 0..bytes.len() {
        let sound = *ends.iter().rfind(|end| **end <= len).unwrap();
        assert_eq!(replayed(&bytes[..len]).sound_bytes, sound as u64, "cut at {len}");
        let mut flipped = bytes.clone();
        flipped[len] ^= 1 << (len % 8);
        assert_eq!(replayed(&flipped).sound_bytes, sound as u64, "flipped at {len}");
    }
}

#[test]
fn what_cannot_be_is_not_believed() {
    let begin =
        Record::Begin { file: 0, origin: origin(b"a", 100), request_bytes: 4096, made: made(9) };
    let cases = [
        // Beyond its end, without its digests, with digests of something else.
        vec![have(0, 90, 101)],
        vec![Record::Have { file: 0, ranges: vec![(0, 40)], nodes: vec![] }],
        vec![Record::Have { file: 0, ranges: vec![(0, 40)], nodes: vec![node(0, 39)] }],
        vec![Record::Have { file: 0, ranges: vec![(0, 40)], nodes: vec![node(20, 40)] }],
    ];
    for case in cases {
        let open = Record::Open { transfer: TRANSFER };
        let records = [vec![open, begin.clone()], case].concat();
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        assert_eq!(replayed(&bytes).partials().count(), 0, "{records:?}");
    }
    let other = Record::Open { transfer: [8; 16] }.encode();
    assert_eq!(replayed(&other).sound_bytes, 0, "another transfer's journal");
}

/// A part of five requests, as the journal of a run that was killed records it.
struct Killed {
    folder: tempfile::TempDir,
    volume: Arc<dyn Volume>,
    bytes: Vec<u8>,
}

const REQUEST: u64 = 4096;
const CUT: Cut = Cut { request_bytes: REQUEST as u32, digest: DigestKind::Crc64 };

fn opened(volume: &Arc<dyn Volume>) -> (PriorRuns, Journal) {
    match open(volume, &journal_name(&TRANSFER), TRANSFER, CUT) {
        Ok(Opened::Ours(found)) => *found,
        other => panic!("{other:?}"),
    }
}

impl Killed {
    /// With this much in the part; `known` changes its identity in the journal.
    fn new(len: u64, known: impl Fn(Identity) -> Identity) -> Killed {
        let folder = tempfile::tempdir().unwrap();
        let volume: Arc<dyn Volume> = Arc::new(crate::io::disk::Disk::open(folder.path()).unwrap());
        let mut bytes: Vec<u8> = (0..5 * REQUEST).map(|at| (at * 7 / 3) as u8 | 1).collect();
        bytes[len as usize..].fill(0);
        std::fs::write(folder.path().join("part"), &bytes[..len as usize]).unwrap();
        let killed = Killed { folder, volume, bytes };
        let part = killed.volume.open(b"part", READ_THROUGH).unwrap();
        let made = killed.volume.identity_of(&part, b"part").unwrap().0.unwrap();
        let (_, mut journal) = opened(&killed.volume);
        let file = journal.begin(killed.origin(), known(made)).unwrap();
        let read = |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&killed.bytes[at as usize..at as usize + into.len()]);
            Ok(into.len())
        };
        for at in (0..5 * REQUEST).step_by(REQUEST as usize) {
            let stretch = (at, at + REQUEST);
            let nodes = nodes_of(CUT.digest, CUT.request_bytes, &[stretch], read);
            let mut ranges = ExtentSet::default();
            assert!(ranges.insert_new(stretch.0, stretch.1));
            journal.have(file, &Held { ranges, nodes }).unwrap();
        }
        killed
    }

    fn origin(&self) -> Origin {
        origin(b"whole", self.bytes.len() as u64)
    }

    /// What another run finds, and finds again when it is killed too.
    fn found(&self) -> Left {
        let find = || {
            let (mut prior_runs, mut journal) = opened(&self.volume);
            prior_runs.prepare(&mut journal, CUT, |_| b"part".to_vec(), || true).unwrap();
            prior_runs.partial(&self.origin(), CUT.request_bytes, b"part").unwrap()
        };
        let found = find();
        if matches!(found, Left::Part(_)) {
            assert_eq!(find(), found, "another run finds something else");
        }
        found
    }
}

/// One byte that is wrong costs its request, and a hole at the end nothing.
#[test]
fn what_reads_back_is_kept() {
    let whole = vec![(0, 5 * REQUEST)];
    let cases = [
        (5 * REQUEST, None, whole.clone()),
        (4 * REQUEST + 100, None, whole.clone()),
        (3 * REQUEST, None, whole),
        (5 * REQUEST, Some(REQUEST + 5), vec![(0, REQUEST), (2 * REQUEST, 5 * REQUEST)]),
        (3 * REQUEST, Some(0), vec![(REQUEST, 5 * REQUEST)]),
    ];
    for (len, wrong_at, expect) in cases {
        let killed = Killed::new(len, |made| made);
        if let Some(at) = wrong_at {
            let mut bytes = killed.bytes[..len as usize].to_vec();
            bytes[at as usize] ^= 1;
            // In place: it is still the same file.
            let path = killed.folder.path().join("part");
            std::fs::write(path, bytes).unwrap();
        }
        let Left::Part(partial) = killed.found() else { panic!("{len}: nothing is found") };
        let ranges: Vec<_> = partial.flushed.ranges.ranges().collect();
        assert_eq!(ranges, expect, "{len} bytes, wrong at {wrong_at:?}");
    }
}

#[test]
fn a_part_is_known_by_more_than_its_number() {
    type Change = fn(Identity) -> Identity;
    let cases: [(&str, Change, bool); 5] = [
        ("nothing", |made| made, true),
        ("no time of birth", |made| Identity { born: None, ..made }, true),
        ("the owner", |made| Identity { owner: made.owner + 1, ..made }, false),
        ("the number", |made| Identity { inode: made.inode + 1, ..made }, false),
        (
            "the time of birth",
            |made| {
                let born = made.born.expect("this file system says when a file was made");
                Identity { born: Some(Mtime { seconds: born.seconds - 1, ..born }), ..made }
            },
            false,
        ),
    ];
    for (what, change, is_known) in cases {
        let found = Killed::new(5 * REQUEST, change).found();
        assert_eq!(matches!(found, Left::Part(_)), is_known, "{what}: {found:?}");
    }
}

/// What is written again counts as it was written last; what is not trusted is not there.
#[test]
fn the_last_word_counts() {
    let begin =
        Record::Begin { file: 0, origin: origin(b"a", 100), request_bytes: 4096, made: made(9) };
    let records = |more: Vec<Record>| {
        let open = Record::Open { transfer: TRANSFER };
        let all = [vec![open, begin.clone()], more].concat();
        all.iter().flat_map(Record::encode).collect::<Vec<u8>>()
    };
    let (flushed, forget) = (Record::Flushed { file: 0 }, Record::Forget { file: 0 });
    type Ranges = Vec<(u64, u64)>;
    let cases: [(Vec<Record>, Ranges, Ranges); 3] = [
        (
            vec![have(0, 0, 40), have(0, 60, 70), flushed.clone(), have(0, 30, 50)],
            vec![(60, 70)],
            vec![(30, 50)],
        ),
        (vec![have(0, 0, 40), forget.clone(), have(0, 20, 60)], vec![], vec![(20, 60)]),
        (vec![have(0, 0, 40), flushed, have(0, 50, 60), forget], vec![(0, 40)], vec![]),
    ];
    for (said, flushed, written) in cases {
        let bytes = records(said.clone());
        let replay = replayed(&bytes);
        let [partial] = &replay.partials().collect::<Vec<_>>()[..] else { panic!("{said:?}") };
        let ranges = |held: &Held| held.ranges.ranges().collect::<Ranges>();
        assert_eq!(ranges(&partial.flushed), flushed, "{said:?}");
        assert_eq!(ranges(&partial.written), written, "{said:?}");
    }
}
