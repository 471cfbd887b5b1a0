//! `cargo xtask bench many`: millions of empty files between two file systems, which shows every
//! nanosecond and every byte of the cost of a file.

use crate::said;
use analysis::record::sample::Side;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use super::cpu::{Accounts, Used};
use super::{build, far, is_root, machine, need};
use crate::page::table;
use xtask::packages;
use xtask::step::{output, root, target_folder};

const FILES: u64 = 10_000_000;
const FILES_A_FOLDER: u64 = 1000;
const COLUMNS: [&str; 7] = [
    "tool",
    "time",
    "microseconds a file",
    "synced",
    "processor, microseconds a file",
    "others",
    "memory",
];

struct Options {
    files: u64,
    disk: PathBuf,
    /// Only tools with this in their names.
    only: String,
}

/// One tool's run.
struct Row {
    name: &'static str,
    /// Until all of it is on the disk.
    synced_seconds: f64,
    /// Until the tool's end.
    used: Used,
    memory: String,
}

pub(crate) fn many(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    if !is_root() {
        return Err("bench many: file systems are mounted, which takes root".into());
    }
    packages::ensure(packages::FOR_BENCHES)?;
    build()?;
    let place = tempfile::Builder::new().prefix("datapump-many-").tempdir_in(&options.disk);
    let place = place.map_err(|why| format!("{}: {why}", options.disk.display()))?;
    let source = Image::mount(&place.path().join("source"), options.files)?;
    let tree = source.folder.join("tree");
    let begun = Instant::now();
    make_files(&tree, options.files)?;
    println!("{} files made in {:.0} s", options.files, begun.elapsed().as_secs_f64());
    let target = place.path().join("target");
    let accounts = Accounts::open();
    let mut rows = Vec::new();
    for tool in TOOLS.into_iter().filter(|(name, _)| name.contains(&options.only)) {
        rows.push(row(tool, &source.folder, &target, &accounts, options.files)?);
        // Each takes long: results must survive an interruption.
        write(&target_folder().join("many-part.md"), &page(&options, &accounts, &rows))?;
    }
    let page = page(&options, &accounts, &rows);
    let date = output(Command::new("date").arg("+%F"))?;
    if options.files >= FILES && options.only.is_empty() {
        write(&root().join(format!("runs/{}-many.md", date.trim())), &page)?;
    }
    println!("\n{page}");
    Ok(())
}

fn write(path: &Path, page: &str) -> Result<(), String> {
    fs::write(path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

/// One tool's run to a file system of its own.
fn row(
    (name, tool): (&'static str, Tool),
    source: &Path,
    target: &Path,
    accounts: &Accounts,
    files: u64,
) -> Result<Row, String> {
    let room = Image::mount(target, files)?;
    output(Command::new("sync").arg("-f").arg(source))?;
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    let begun = accounts.now();
    let memory = tool(&source.join("tree"), &room.folder.join("tree"))?;
    let used = begun.until(&accounts.now());
    output(Command::new("sync").arg("-f").arg(&room.folder))?;
    let synced_seconds = begun.until(&accounts.now()).wall_s;
    let (there, here) = (inodes(source)?, inodes(&room.folder)?);
    if there != here {
        return Err(format!("{name}: {here} of {there} inodes have come"));
    }
    println!("{name}: {:.1} s, on the disk after {synced_seconds:.1} s {memory}", used.wall_s);
    Ok(Row { name, synced_seconds, used, memory })
}

type Tool = fn(&Path, &Path) -> Result<String, String>;

const TOOLS: [(&str, Tool); 4] = [
    ("datapump, through sshd", |from, to| {
        datapump(from, &format!("far:{}", to.display()), &["--ssh".into(), far::ssh_command()])
    }),
    ("datapump, here", |from, to| datapump(from, &to.display().to_string(), &[])),
    ("tar c \\| tar x", |from, to| {
        fs::create_dir(to).map_err(|why| why.to_string())?;
        let line = "set -o pipefail; tar c -C \"$0\" . | tar x -C \"$1\"";
        output(Command::new("bash").args(["-c", line]).arg(from).arg(to)).map(|_| String::new())
    }),
    ("rsync -a", |from, to| {
        let from = format!("{}/", from.display());
        output(Command::new("rsync").arg("-a").arg(from).arg(to)).map(|_| String::new())
    }),
];

/// The memory figures of the two sides.
fn datapump(from: &Path, to: &str, words: &[String]) -> Result<String, String> {
    let program = target_folder().join("release/datapump");
    let mut command = Command::new(&program);
    command.args(["copy", "-r", "-q", "--json"]).args(words);
    if !words.is_empty() {
        command.arg("--remote-datapump").arg(&program);
    }
    let said = output(command.arg(format!("{}/", from.display())).arg(to))?;
    let record = said::record(&said)?;
    let mib = |side: &Side| side.peak_memory_bytes >> 20;
    Ok(match &record.sink {
        Some(sink) => format!("source {} MiB, sink {} MiB", mib(&record.source), mib(sink)),
        None => format!("both {} MiB", mib(&record.source)),
    })
}

/// Empty files, 1,000 per folder, made by one thread per processor.
fn make_files(tree: &Path, files: u64) -> Result<(), String> {
    let folders = files.div_ceil(FILES_A_FOLDER);
    let workers = machine::cpus() as u64;
    let work = |worker: u64| -> std::io::Result<()> {
        for folder in (worker..folders).step_by(workers as usize) {
            let path = tree.join(format!("d{:03}/e{folder:05}", folder / 100));
            fs::create_dir_all(&path)?;
            for number in 0..FILES_A_FOLDER.min(files - folder * FILES_A_FOLDER) {
                fs::File::create_new(path.join(format!("file-{number:04}")))?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|w| scope.spawn(move || work(w))).collect();
        threads.into_iter().try_for_each(|thread| {
            let done = thread.join().map_err(|_| "a thread panicked".to_string())?;
            done.map_err(|why| format!("{}: {why}", tree.display()))
        })
    })
}

fn inodes(folder: &Path) -> Result<u64, String> {
    let said = output(Command::new("df").arg("--output=iused").arg(folder))?;
    let count = said.lines().nth(1).and_then(|line| line.trim().parse().ok());
    count.ok_or_else(|| format!("df says no count of inodes: {said}"))
}

/// A file system in a file, mounted; both are removed on drop.
struct Image {
    folder: PathBuf,
    image: PathBuf,
}

impl Image {
    fn mount(folder: &Path, files: u64) -> Result<Image, String> {
        let inodes = files + files / 50 + 10_000;
        // An inode takes 256 bytes, a directory entry about 24.
        let bytes = inodes * 256 + files * 48 + (1 << 30);
        let text = |why: std::io::Error| format!("{}: {why}", folder.display());
        fs::create_dir_all(folder).map_err(text)?;
        let image = folder.with_extension("image");
        fs::File::create(&image).and_then(|file| file.set_len(bytes)).map_err(text)?;
        let mut make = Command::new(need("mkfs.ext4", "e2fsprogs"));
        make.args(["-q", "-I", "256", "-m", "0", "-N", &inodes.to_string()]);
        output(make.arg(&image))?;
        let mut mount = Command::new(need("mount", "mount"));
        output(mount.args(["-o", "loop,noatime"]).arg(&image).arg(folder))?;
        Ok(Image { folder: folder.to_path_buf(), image })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        let _ = fs::remove_file(&self.image);
    }
}

fn page(options: &Options, accounts: &Accounts, rows: &[Row]) -> String {
    let mut page = String::from("# Millions of empty files\n\n");
    for note in machine::notes(&options.disk) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!(
        "\n{} empty files, {FILES_A_FOLDER} in a folder, from one ext4 in a loop file to another, \
         each time a new one, with cold caches: `cargo xtask bench many --files {}`. One run each. \
         datapump syncs what it has made before it ends; the column synced is when `sync -f` had \
         ended too. Processor time is of all that the tool started, on both sides, by {}; what \
         the machine did for others beside it is a share of all processors, so where that is \
         high the time on the clock says less than the processor time. Memory is the peak of \
         each side as the report has it.\n\n",
        options.files,
        options.files,
        accounts.description()
    ));
    let each = |seconds: f64| format!("{:.1}", seconds * 1e6 / options.files as f64);
    let cells = |row: &Row| {
        vec![
            row.name.to_string(),
            format!("{:.1} s", row.used.wall_s),
            each(row.used.wall_s),
            format!("{:.1} s", row.synced_seconds),
            each(row.used.cpu_ns / 1e9),
            format!("{:.0} %", row.used.foreign * 100.0),
            row.memory.clone(),
        ]
    };
    page + &table(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { files: FILES, disk: target_folder(), only: String::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("bench many: {word} needs a value"))?;
        match *word {
            "--files" => {
                let number = value.parse().ok().filter(|number| *number > 0);
                options.files = number.ok_or("bench many: --files needs a number")?;
            }
            "--disk" => options.disk = PathBuf::from(value),
            "--only" => options.only = (*value).to_string(),
            _ => return Err(format!("bench many: unknown option {word}")),
        }
    }
    Ok(options)
}
