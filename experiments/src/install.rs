//! `cargo xtask install-matrix`: copies to far hosts of all kinds that have no datapump, and a page
//! about them in `runs/`.

#[path = "../../tests/integration/support/cells.rs"]
mod cells;

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cells::{CELLS, Cell, Copied, FarHost, Near, check};

use crate::bench::machine;
use crate::page::table;
use xtask::packages;
use xtask::step::{cargo, output, root, run, target_folder};

/// `install-matrix [--archive FILE] [--program FILE] [--peer FILE] [--only NAME]`: the programs are
/// those of a release's archive, or those that are named, or built here.
pub(crate) fn matrix(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_TESTS)?;
    packages::ensure(packages::FOR_INSTALLS)?;
    let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
    let near = shipped(folder.path(), &options)?;
    let is_all = options.only.is_none();
    let chosen = |cell: &&Cell| options.only.as_deref().is_none_or(|only| cell.name == only);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for cell in CELLS.iter().filter(chosen) {
        let row = tried(cell, &near);
        println!("{}: {}", cell.name, row.as_ref().map_or_else(Clone::clone, Row::shown));
        match row {
            Ok(row) => rows.push(row),
            Err(why) => failed.push(why),
        }
    }
    let page = page(&near, &rows, &failed);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = match is_all {
        true => root().join(format!("runs/{}-install.md", date.trim())),
        false => target_folder().join("install-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    match failed.is_empty() && rows.iter().all(Row::is_in_time) {
        true => Ok(()),
        false => Err("install-matrix: a host is not as it must be, see the page".to_string()),
    }
}

struct Options {
    archive: Option<PathBuf>,
    program: Option<PathBuf>,
    peer: Option<PathBuf>,
    only: Option<String>,
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { archive: None, program: None, peer: None, only: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match *word {
            "--archive" => options.archive = Some(value.into()),
            "--program" => options.program = Some(value.into()),
            "--peer" => options.peer = Some(value.into()),
            "--only" => options.only = Some(value.to_string()),
            _ => return Err(format!("install-matrix has no option {word}")),
        }
    }
    Ok(options)
}

/// The program as it is shipped: in a folder with what it can send.
fn shipped(folder: &Path, options: &Options) -> Result<Near, String> {
    let peer_name = format!("datapump-peer-{}", std::env::consts::ARCH);
    if let Some(archive) = &options.archive {
        let mut tar = Command::new("tar");
        tar.args(["--strip-components", "1", "-xzf"]).arg(archive).arg("-C").arg(folder);
        output(&mut tar)?;
        let own = folder.join("lib/datapump").join(&peer_name);
        // There is nothing for the host with another processor.
        let brought = fs::read_dir(folder.join("lib/datapump")).map_err(|why| why.to_string())?;
        let mut others = brought.flatten().map(|entry| entry.path()).filter(|path| *path != own);
        others.try_for_each(fs::remove_file).map_err(|why| why.to_string())?;
        return Ok(Near { program: folder.join("bin/datapump"), own });
    }
    if options.program.is_none() || options.peer.is_none() {
        let build = "build --profile dist --bin datapump -p datapump";
        run("build the program", &mut cargo(build))?;
        run("build the mover", &mut cargo("build --profile dist -p datapump-mover"))?;
    }
    let built = target_folder().join("dist");
    let program = options.program.clone().unwrap_or_else(|| built.join("datapump"));
    let peer = options.peer.clone().unwrap_or_else(|| built.join("datapump-peer"));
    let near = Near { program: folder.join("datapump"), own: folder.join(peer_name) };
    for (from, to) in [(program, &near.program), (peer, &near.own)] {
        fs::copy(&from, to).map_err(|why| format!("{}: {why}", from.display()))?;
    }
    Ok(near)
}

/// What a cell gave.
struct Row {
    name: &'static str,
    login: Duration,
    copies: Vec<Copied>,
}

impl Row {
    /// The criterion: a first copy starts within two seconds of its login.
    fn is_in_time(&self) -> bool {
        self.copies.iter().all(|copied| copied.took < self.login + START_WITHIN)
    }

    fn outcome(&self) -> String {
        let words = self.copies[0].words();
        let line = words.lines().rfind(|line| line.starts_with("datapump: "));
        let line = line.unwrap_or("copied").trim_start_matches("datapump: ");
        line.trim_start_matches("warning: ").replace('|', "/")
    }

    fn shown(&self) -> String {
        let times = self.copies.iter().map(|copied| seconds(copied.took));
        let times: Vec<_> = times.collect();
        format!("login {}, copies {}: {}", seconds(self.login), times.join(", "), self.outcome())
    }
}

const START_WITHIN: Duration = Duration::from_secs(2);

fn tried(cell: &'static Cell, near: &Near) -> Result<Row, String> {
    let tried = || {
        let host = FarHost::start(cell, near);
        let login = host.login();
        let copies = check(cell, &host, near)?;
        Ok(Row { name: cell.name, login, copies })
    };
    panic::catch_unwind(AssertUnwindSafe(tried))
        .unwrap_or_else(|_| Err(format!("{}: see the words above", cell.name)))
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn page(near: &Near, rows: &[Row], failed: &[String]) -> String {
    let mut page = String::from("# Nothing to install: far hosts of all kinds\n\n");
    for note in machine::notes(&std::env::temp_dir()) {
        page.push_str(&format!("- {note}\n"));
    }
    let version = output(Command::new(&near.program).arg("--version")).unwrap_or_default();
    page.push_str(&format!("- {}\n", version.trim().replace('\n', "; ")));
    let megabytes = |path: &Path| fs::metadata(path).map_or(0.0, |data| data.len() as f64 / 1e6);
    page.push_str(&format!(
        "\n`cargo xtask install-matrix`. Each row is an sshd of its own in namespaces of its \
         own (mounts and network, reached over a virtual Ethernet link), with one account, \
         and two copies of a small file to it by a program that lies beside a mover of {:.1} MB. \
         *Sent* is how often the mover was sent in the first copy; in the second it is never \
         sent.\n\nCriteria, committed before this run: each row does what the table of the cells \
         (`tests/integration/support/cells/table.rs`) says, a copy or an error with the right \
         words; sshd's log has one login for each copy; the second copy sends nothing; a copy ends \
         within {} s of the time that `ssh HOST true` takes, the sending included. {} of {} rows \
         meet the first three, and {} of those the last.\n\n",
        megabytes(&near.own),
        START_WITHIN.as_secs(),
        rows.len(),
        rows.len() + failed.len(),
        rows.iter().filter(|row| row.is_in_time()).count(),
    ));
    let columns =
        ["far host", "login", "first", "second", "logins", "sent", "last words of the first"];
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    page.push_str(&table(&columns, &lines));
    for why in failed {
        page.push_str(&format!("\n**Failed:** {}\n", why.replace('\n', " ")));
    }
    page
}

fn line(row: &Row) -> Vec<String> {
    let logins = row.copies.iter().map(|copied| copied.logins.to_string());
    vec![
        row.name.to_string(),
        seconds(row.login),
        seconds(row.copies[0].took),
        seconds(row.copies[1].took),
        logins.collect::<Vec<_>>().join(" + "),
        row.copies[0].sent.to_string(),
        row.outcome(),
    ]
}
