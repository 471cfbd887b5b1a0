//! What the two hosts copy.

use std::collections::VecDeque;
use std::sync::Arc;

use mover::io::sim::{Rng, SimVolume};
use mover::io::volume::Mtime;
use mover::pump::source::walk::{Found, From};
use mover::wire::manifest::{Entry, EntryKind};

use super::{SLOT, Tree3};

/// Files of sizes around the edges, some with holes and some with two names, in a few directories,
/// offered in a few chunks.
pub(crate) fn make_tree(rng: &mut Rng, origin: &Arc<SimVolume>) -> (Tree3, VecDeque<Vec<Found>>) {
    let mut sent = Tree3::new();
    let mut chunks = VecDeque::new();
    let mut number = 0;
    let mut offered = 0;
    let many = if rng.once_in(3) { 8 } else { 3 };
    for _ in 0..1 + rng.below(many) {
        let mut chunk = Vec::new();
        for directory in [&b"a"[..], b"b"] {
            chunk.push(Found {
                entry: entry(EntryKind::Directory, directory.to_vec(), 0),
                from: None,
            });
        }
        for _ in 0..1 + rng.below(12) {
            let size = match rng.below(6) {
                0 => 0,
                1 => 1,
                2 => u64::from(SLOT) + rng.below(3) - 1,
                3 => rng.below(300),
                4 => rng.below(5000),
                _ => rng.below(60_000),
            };
            let mut bytes: Vec<u8> = (0..size).map(|_| rng.roll() as u8).collect();
            let sparse = rng.below(3) == 0;
            if sparse {
                let (from, to) = (rng.below(size + 1), rng.below(size + 1));
                bytes[from.min(to) as usize..from.max(to) as usize].fill(0);
                // Stretches that are shorter than a request.
                for block in bytes.chunks_mut(SLOT as usize) {
                    if rng.once_in(2) {
                        block.fill(0);
                    }
                }
            }
            number += 1;
            let folder = ["", "a/", "b/"][rng.below(3) as usize];
            let path = format!("{folder}f{number}").into_bytes();
            origin.put(&path, bytes.clone(), Mtime { seconds: 7, nanos: number });
            let mut entry = entry(EntryKind::File, path.clone(), size);
            entry.mtime_nanos = number;
            entry.sparse = sparse;
            if sparse {
                entry.allocated_bytes = size;
            }
            let twin = offered + chunk.len() as u64;
            entry.names_follow = rng.below(4) == 0;
            let second = entry.names_follow.then(|| second_name(&entry, twin));
            let from = From { volume: origin.clone(), path: path.clone() };
            chunk.push(Found { entry, from: Some(from) });
            sent.insert(path, bytes.clone());
            if let Some(entry) = second {
                sent.insert(entry.path.clone(), bytes);
                chunk.push(Found { entry, from: None });
            }
        }
        for directory in [&b"a"[..], b"b"] {
            let entry = entry(EntryKind::Leave, directory.to_vec(), 0);
            chunk.push(Found { entry, from: None });
        }
        offered += chunk.len() as u64;
        chunks.push_back(chunk);
    }
    (sent, chunks)
}

fn second_name(file: &Entry, twin: u64) -> Entry {
    Entry {
        link_target: file.path.clone(),
        twin,
        twin_bytes: file.size,
        mtime_nanos: file.mtime_nanos,
        ..entry(EntryKind::HardLink, [&file.path[..], b"-too"].concat(), 0)
    }
}

fn entry(kind: EntryKind, path: Vec<u8>, size: u64) -> Entry {
    Entry {
        kind,
        size,
        mtime_seconds: 7,
        mtime_nanos: 0,
        mode: 0o644,
        path,
        link_target: Vec::new(),
        ..Entry::default()
    }
}
