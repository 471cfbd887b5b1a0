//! Files with holes: only their data is sent and written, also when a copy is resumed.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::run;
use crate::support::{Scene, data, each};

/// The smallest unit that this file system allocates.
const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Extents of data in a file that is a hole otherwise.
#[derive(Clone, Copy, Debug)]
struct Islands {
    count: u64,
    bytes: u64,
    every: u64,
    /// A hole after the last whole extent.
    tail: u64,
}

const SMALL: Islands = Islands { count: 500, bytes: 4096, every: 96 << 10, tail: 5 };
const ONE: Islands = Islands { count: 1, bytes: 10_000, every: 20 * MIB, tail: 3 * MIB };
const MANY: Islands = Islands { count: 1500, bytes: 4096, every: 40 << 10, tail: 1 };
const THOUSAND: Islands = Islands { count: 1000, bytes: 4096, every: 40 << 10, tail: 1 };
/// The last stretch ends with the file, inside a block.
const LONG: Islands = Islands { count: 150, bytes: 40_960, every: 140 << 10, tail: 0 };

impl Islands {
    fn size(self) -> u64 {
        let last = if self.tail == 0 { self.bytes - 77 } else { self.every + self.tail };
        (self.count - 1) * self.every + last
    }

    fn data_bytes(self) -> u64 {
        self.count * self.bytes
    }

    fn write(self, path: &Path) {
        let full = data::bytes(7, (self.count.min(64) * self.bytes) as usize);
        let mut file = fs::File::create(path).unwrap();
        for (island, bytes) in (0..self.count).zip(full.chunks(self.bytes as usize).cycle()) {
            file.seek(SeekFrom::Start(island * self.every)).unwrap();
            file.write_all(bytes).unwrap();
        }
        file.set_len(self.size()).unwrap();
        file.sync_all().unwrap();
    }
}

const WAYS: [(&str, &str); 3] = [("", ""), ("", "far:"), ("far:", "")];

/// Options that change how bytes are processed, combined.
fn choices(number: usize) -> String {
    let engine = ["threads", "uring"][number % 2];
    let direct = ["on", "off", "auto"][number % 3];
    let compress = ["off", "auto", "zstd:3", "lz4", "zlib:6"][number % 5];
    let seal = ["tls", "auth", "off"][number / 3 % 3];
    let digest = ["blake3", "crc64", "none"][number / 5 % 3];
    format!(
        "--engine {engine} --direct {direct} --compress {compress} --seal {seal} --digest {digest}"
    )
}

const CHOICES: usize = 15;

/// Only the data is sent, plus at most a block at each end of an extent, for every request size,
/// coding and seal; the destination takes as much space as the source.
#[test]
fn only_data_travels() {
    let ways = WAYS.iter().enumerate();
    let cases = ways.flat_map(|(way, ends)| (0..CHOICES).map(move |number| (number, way, ends)));
    each(cases, |(number, way, (from, to))| {
        let islands = [ONE, SMALL, LONG, THOUSAND][(number + way) % 4];
        let scene = Scene::new();
        islands.write(&scene.path("in"));
        fs::create_dir(scene.path("dst")).unwrap();
        let size = ["64K", "1M", "16M", "256K"][number % 4];
        let options = format!("{} --request-size {size}", choices(*number));
        let line = format!("copy {options} --json {from}@/in {to}@/dst/out");
        let ran = scene.succeed(&line);
        check_copy(&scene, islands, &line);
        let moved = &ran.events().pop().unwrap()["record"]["moved"];
        assert_eq!(moved["bytes"], islands.size(), "{ran}");
        check_rate(moved, islands, &line);
        if !from.is_empty() || !to.is_empty() {
            check_sent(moved, islands, islands.size(), &line);
        }
    });
}

/// Holes are told, and are in no rate.
fn check_rate(moved: &serde_json::Value, islands: Islands, line: &str) {
    let data = islands.size() - moved["hole_bytes"].as_u64().unwrap();
    let most = islands.data_bytes() + 2 * BLOCK * islands.count;
    let least = islands.data_bytes().min(islands.size()) - BLOCK;
    assert!((least..=most).contains(&data), "{line}: {moved}");
    let took_s = data as f64 / moved["goodput_bytes_per_s"].as_f64().unwrap();
    assert!(took_s <= moved["elapsed_s"].as_f64().unwrap() * 1.01, "{line}: {moved}");
}

/// Several short files are sent in one request: also of these only the data.
#[test]
fn short_files_are_no_exception() {
    each(&WAYS[1..], |(from, to)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        let files = 40;
        let islands = Islands { count: 2, bytes: 4096, every: 200 << 10, tail: 7 };
        (0..files).for_each(|i| islands.write(&scene.path(format!("src/{i}"))));
        let line = format!("copy -r --compress off --json {from}@/src/ {to}@/dst");
        let ran = scene.succeed(&line);
        data::assert_same(&scene.path("src"), &scene.path("dst"));
        let all = Islands { count: files * islands.count, ..islands };
        check_sent(
            &ran.events().pop().unwrap()["record"]["moved"],
            all,
            files * islands.size(),
            &line,
        );
    });
}

/// A map of holes fits a block up to 128 MiB less 128 KiB: a longer request is sent with its zeros,
/// or as a hole.
#[test]
fn requests_beyond_the_longest_map() {
    let cases = [
        (WAYS[1], "off", Long::WithHoles),
        (WAYS[2], "zstd:3", Long::WithHoles),
        (WAYS[1], "lz4", Long::Text),
        (WAYS[2], "zlib:1", Long::Text),
    ];
    each(cases, |((from, to), compress, content)| {
        let scene = Scene::new();
        content.write(&scene.path("in"));
        fs::create_dir(scene.path("dst")).unwrap();
        let options = format!("--request-size 128M --streams 1 --memory 1G --compress {compress}");
        let ran = scene.succeed(&format!("copy {options} --json {from}@/in {to}@/dst/out"));
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        let moved = &ran.events().pop().unwrap()["record"]["moved"];
        let sent = moved["wire_bytes"].as_u64().unwrap();
        // The first request with its zeros, nothing of the second, and the data of the third.
        let expect = match (*content, *compress) {
            (Long::WithHoles, "off") => 128 * MIB..131 * MIB,
            (Long::WithHoles, _) => 2 * MIB..5 * MIB,
            (Long::Text, _) => 0..10 * MIB,
        };
        // A stream that is lost on a busy machine has its requests sent again.
        let is_again = ran.stderr.contains("was lost");
        assert!(expect.contains(&sent) || is_again, "{sent} bytes were sent: {ran}");
        let takes = |name| fs::metadata(scene.path(name)).unwrap().blocks() * 512;
        assert!(takes("dst/out") <= takes("in") + MIB, "{}: {ran}", takes("dst/out"));
    });
}

/// Two or three requests of 128 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// Data in the first and in the last, which is short.
    WithHoles,
    Text,
}

impl Long {
    fn write(self, path: &Path) {
        if self == Long::Text {
            let line = b"a line that is there again and again, and shrinks to next to nothing\n";
            return fs::write(path, line.repeat(130 * MIB as usize / line.len())).unwrap();
        }
        let file = fs::File::create(path).unwrap();
        for at in [5 * MIB, 100 * MIB, 260 * MIB] {
            file.write_all_at(&data::bytes(at, MIB as usize), at).unwrap();
        }
        file.set_len(265 * MIB + 7).unwrap();
    }
}

/// A rate limits what is sent: holes do not count.
#[test]
fn holes_do_not_wait_for_a_rate() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        let islands = Islands { count: 3, bytes: 4096, every: 400 * MIB, tail: 5 };
        islands.write(&scene.path("in"));
        let begun = Instant::now();
        scene.succeed(&format!("copy --rate 1MB {from}@/in {to}@/out"));
        // All of it would take 20 minutes.
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    });
}

fn check_sent(moved: &serde_json::Value, islands: Islands, size: u64, line: &str) {
    let sent = moved["wire_bytes"].as_u64().unwrap();
    let data = islands.data_bytes() + 2 * BLOCK * islands.count;
    // A frame is 64 bytes, its tag 32, its map a bit for each block; TLS adds 22 to 16 KiB.
    let frames = size.div_ceil(64 << 10) * 96 + size / BLOCK / 8;
    let most = data + data / 500 + frames + 22 * size.div_ceil(64 << 10) + 2000;
    assert!(sent <= most, "{line}: {sent} bytes were sent, {most} are allowed");
}

#[test]
fn data_goes_on_and_holes_stay_holes() {
    let cases = (0..CHOICES).map(|number| (number, WAYS[number / 5 % 3]));
    each(cases, |(number, (from, to))| {
        let scene = Scene::new();
        // A request holds a few extents, and some extents are in two.
        let islands = if number % 2 == 0 { MANY } else { LONG };
        islands.write(&scene.path("in"));
        fs::create_dir(scene.path("dst")).unwrap();
        let ends = format!("{from}@/in {to}@/dst/out");
        // A rate limit makes requests small, and a resumed run needs the same size.
        let options = format!("{} --request-size 64K", choices(*number));
        let slow = format!("copy {options} --rate 600KB {ends}");
        let running = run::start(scene.command(&scene.words(&slow)));
        data::wait_for_flush(&scene.path("dst"));
        let pid = rustix::process::Pid::from_raw(running.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        running.end();
        if from.is_empty() && to.is_empty() {
            spoil_end(&scene.path("dst"), islands.size());
        }
        let line = format!("copy {options} --json {ends}");
        let ran = scene.succeed(&line);
        let end = ran.events().pop().unwrap();
        check_sent(&end["record"]["moved"], islands, islands.size(), &line);
        assert!(
            end["record"]["moved"]["resumed_bytes"].as_u64().unwrap() > 0,
            "it began anew\n{ran}"
        );
        check_copy(&scene, islands, &line);
    });
}

/// The bytes after the last request that a killed sink can have recorded are undefined, as after a
/// power cut.
fn spoil_end(folder: &Path, size: u64) {
    let files = data::files_below(folder);
    let part = files.iter().find(|path| path.extension().is_some_and(|end| end == "part"));
    let part = fs::File::options().read(true).write(true).open(part.expect("a part")).unwrap();
    assert_eq!(part.metadata().unwrap().len(), size, "its holes are there from the start");
    // Requests without data may follow the last one with data.
    let from = data_end(&part, size).next_multiple_of(64 << 10) + (128 << 10);
    let bytes = vec![0xff; size.saturating_sub(from) as usize];
    part.write_all_at(&bytes, from).unwrap();
}

fn data_end(file: &fs::File, size: u64) -> u64 {
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(data)).unwrap();
    }
    at.min(size)
}

fn check_copy(scene: &Scene, islands: Islands, line: &str) {
    let (from, to) = (scene.path("in"), scene.path("dst/out"));
    data::assert_same(&from, &to);
    scene.assert_holds("dst", &["out"]);
    let takes = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    // A file system needs blocks of its own for the list of so many extents.
    let most = takes(&from) + takes(&from) / 100 + islands.count / 100 * BLOCK + 2 * BLOCK;
    assert!(takes(&to) <= most, "{line}: {} bytes take {}", takes(&from), takes(&to));
}
