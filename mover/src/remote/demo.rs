//! `datapump demo`: the main job with no set-up, the far side as another process of this program.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::copy::run_with;
use super::launch::{Launch, own_program};
use super::peer::tag;
use crate::ends::null::fill_seeded;
use crate::io::clock;
use crate::pump::watch::Watch;
use base::fault::{Class, Fault};
use base::job::{Job, Location, Outcome, Remote};
use base::settings::Settings;
use base::units::Bytes;

/// What to move.
#[derive(Clone, Debug)]
pub struct DemoOrder {
    pub settings: Settings,
    /// The size of the large file.
    pub bytes: u64,
    /// How many small ones, of 1 to 64 KiB.
    pub files: u64,
}

/// Generates a data set, copies it, compares it, and removes it again. Each step is told before it
/// begins.
pub fn run(order: &DemoOrder, watch: &Arc<Watch>, tell: &dyn Fn(&str)) -> Result<Outcome, Fault> {
    let folder = Folder::new()?;
    let source = folder.path.join("source");
    tell(&format!(
        "making a file of {} and {} small ones in {}",
        Bytes(order.bytes),
        order.files,
        source.display()
    ));
    make_data(&source, order, watch)?;
    tell("copying them to another process, over TCP streams of this host");
    let job = Job {
        sources: vec![Location::Path(source.join(""))],
        source_host: None,
        target: Location::Path(folder.path.join("copy")),
        target_host: None,
        listed: None,
        range: None,
        settings: Settings { recursive: true, ..order.settings.clone() },
        remote: Remote::default(),
    };
    let launch = Launch::Process { program: own_program()?, cpus: None };
    let outcome = run_with(&job, &launch, watch, clock::now())?;
    tell("reading both again and comparing each byte");
    let files = compare(&source, &folder.path.join("copy"))?;
    match files == order.files + 1 {
        true => Ok(outcome),
        false => Err(Fault::new(
            Class::Corrupt,
            format!("{files} files arrived, {} were sent", order.files + 1),
        )),
    }
}

/// A folder that is removed with its content, however the demo ends.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Folder, Fault> {
        let path = std::env::temp_dir().join(format!("datapump-demo-{}", tag()?));
        fs::create_dir(&path).map_err(|error| Fault::io("make the folder", &path, &error))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn make_data(source: &Path, order: &DemoOrder, watch: &Watch) -> Result<(), Fault> {
    let fault = |path: &Path, error| Fault::io("make", path, &error);
    fs::create_dir_all(source).map_err(|error| fault(source, error))?;
    make_file(&source.join("large"), 0, order.bytes)?;
    for number in 1..=order.files {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        let folder = source.join(format!("folder{:03}", number % 50));
        fs::create_dir_all(&folder).map_err(|error| fault(&folder, error))?;
        make_file(
            &folder.join(format!("small{number:06}")),
            number,
            1024 + number * 7919 % 64_512,
        )?;
    }
    Ok(())
}

/// Makes a file of pseudo-random bytes: no file system can leave any out.
pub fn make_file(path: &Path, seed: u64, bytes: u64) -> Result<(), Fault> {
    let mut block = vec![0; 1 << 20];
    let made = fs::File::create_new(path).and_then(|mut file| {
        let mut start = 0;
        while start < bytes {
            let count = (bytes - start).min(block.len() as u64) as usize;
            fill_seeded(seed, start, &mut block[..count]);
            file.write_all(&block[..count])?;
            start += count as u64;
        }
        Ok(())
    });
    made.map_err(|error| Fault::io("write", path, &error))
}

/// Reads both trees again, from their files; returns the number of files that are equal.
fn compare(source: &Path, copy: &Path) -> Result<u64, Fault> {
    let mut count = 0;
    let entries = fs::read_dir(source).map_err(|error| Fault::io("list", source, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Fault::io("list", source, &error))?;
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        if from.is_dir() {
            count += compare(&from, &to)?;
        } else {
            same_bytes(&from, &to)?;
            count += 1;
        }
    }
    Ok(count)
}

fn same_bytes(from: &Path, to: &Path) -> Result<(), Fault> {
    let open = |path: &Path| fs::File::open(path).map_err(|error| Fault::io("open", path, &error));
    let (mut left, mut right) = (open(from)?, open(to)?);
    let (mut left_block, mut right_block) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let left_count = read_full(&mut left, &mut left_block, from)?;
        let right_count = read_full(&mut right, &mut right_block, to)?;
        if left_block[..left_count] != right_block[..right_count] {
            let text = format!("'{}' is not what was sent", to.display());
            return Err(Fault::new(Class::Corrupt, text));
        }
        if left_count == 0 {
            return Ok(());
        }
    }
}

fn read_full(file: &mut fs::File, block: &mut [u8], path: &Path) -> Result<usize, Fault> {
    let mut count = 0;
    while count < block.len() {
        match file.read(&mut block[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) => return Err(Fault::io("read", path, &error)),
        }
    }
    Ok(count)
}
