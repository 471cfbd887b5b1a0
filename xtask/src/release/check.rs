//! `cargo xtask release --check`: two builds from two folders are equal, and each package is
//! installed where nothing is, runs a copy, and goes away without a trace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{ARCHES, Arch, Programs, Release, listed};
use xtask::packages;
use xtask::step::{output, run};

/// What was tried, and how it ended.
#[derive(Debug, Default)]
struct Page(Vec<(String, Result<String, String>)>);

pub(super) fn check(release: &Release) -> Result<(), String> {
    packages::ensure(packages::FOR_RELEASE_CHECK)?;
    let mut page = Page::default();
    let folder = release.target.join("release-check");
    let (what, one, two) = match release.programs {
        Programs::Built => (
            "two builds, from two folders, are equal",
            build_in(release, &folder.join("one/datapump"))?,
            build_in(release, &folder.join("two/another/place"))?,
        ),
        Programs::Found => (
            "packed twice, the packages are equal",
            pack_in(release, &folder.join("one"))?,
            pack_in(release, &folder.join("two/another"))?,
        ),
    };
    page.add(what, are_equal(&one.out, &two.out));
    let here = ARCHES.iter().find(|arch| arch.name == std::env::consts::ARCH);
    let here = *here.filter(|here| release.arches.contains(here)).ok_or("not for this machine")?;
    let deb = package(&one, &format!("_{}.deb", here.debian))?;
    page.add("lintian", lintian(&deb));
    let system = system(&folder.join("system"))?;
    page.add("deb in a fresh Debian", in_system(&system, &folder, Kind::Deb, &deb));
    let rpm = package(&one, &format!(".{}.rpm", here.name))?;
    page.add("rpm in a fresh root", in_system(&system, &folder, Kind::Rpm, &rpm));
    let wheel = package(&one, &format!("_{}.whl", here.name))?;
    page.add("wheel in a fresh venv", in_venv(&folder.join("venv"), &wheel));
    let tarball = package(&one, &format!("-{}-linux.tar.gz", here.name))?;
    page.add("tarball, unpacked", unpacked(&folder.join("unpacked"), &tarball));
    page.add("far side for aarch64 under qemu", emulated(&one, here, &folder.join("emulated")));
    page.add("start of a static program", start_time(&one, here));
    page.show(&one)
}

impl Page {
    fn add(&mut self, what: &str, result: Result<String, String>) {
        println!("\n== {what}: {result:?}");
        self.0.push((what.to_string(), result));
    }

    fn show(&self, release: &Release) -> Result<(), String> {
        println!("\nCommit {}, profile {}.\n", release.commit, release.profile);
        println!("| what | result |\n|---|---|");
        for (what, result) in &self.0 {
            match result {
                Ok(text) => println!("| {what} | {text} |"),
                Err(why) => println!("| {what} | **failed**: {} |", why.replace('\n', " ")),
            }
        }
        let failed = self.0.iter().filter(|(_, result)| result.is_err()).count();
        if failed == 0 { Ok(()) } else { Err(format!("{failed} checks failed")) }
    }
}

/// Packs the programs that are there into a folder.
fn pack_in(release: &Release, out: &Path) -> Result<Release, String> {
    let made = Release { out: out.to_path_buf(), ..release.clone() };
    made.make()?;
    Ok(made)
}

/// Clones the commit into a folder and makes everything there.
fn build_in(release: &Release, source: &Path) -> Result<Release, String> {
    if release.commit.ends_with("-modified") {
        return Err("release --check builds a commit: commit what is changed first".into());
    }
    let _ = fs::remove_dir_all(source);
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(&release.source).arg(source);
    run(&format!("clone to {}", source.display()), &mut git)?;
    let mut git = Command::new("git");
    output(git.arg("-C").arg(source).args(["checkout", "--quiet", &release.commit]))?;
    let target = source.join("target");
    let made = Release {
        source: source.to_path_buf(),
        out: target.join("packages"),
        target,
        ..release.clone()
    };
    made.make()?;
    Ok(made)
}

fn are_equal(one: &Path, two: &Path) -> Result<String, String> {
    let digests = |folder: &Path| -> Result<BTreeSet<(String, String)>, String> {
        let digest = |path: &PathBuf| {
            let bytes = fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
            let name = path.file_name().unwrap_or_default().display().to_string();
            Ok((name, blake3::hash(&bytes).to_hex().to_string()))
        };
        listed(folder)?.iter().map(digest).collect()
    };
    let (one, two) = (digests(one)?, digests(two)?);
    let differ: BTreeSet<&str> =
        one.symmetric_difference(&two).map(|(name, _)| name.as_str()).collect();
    match differ.is_empty() {
        true => Ok(format!("{} files, byte for byte", one.len())),
        false => Err(format!("differ: {}", differ.into_iter().collect::<Vec<_>>().join(", "))),
    }
}

fn package(release: &Release, end: &str) -> Result<PathBuf, String> {
    let found =
        listed(&release.out)?.into_iter().find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("there is no package *{end}"))
}

fn lintian(deb: &Path) -> Result<String, String> {
    let mut lintian = Command::new("lintian");
    let said = output(lintian.args(["--fail-on", "error,warning", "--allow-root"]).arg(deb))?;
    match said.trim() {
        "" => Ok("no error, no warning".to_string()),
        said => Err(said.to_string()),
    }
}

/// A minimal Debian of the same suite and mirror as this one. It is made once: each check gets a
/// copy.
fn system(folder: &Path) -> Result<PathBuf, String> {
    let complete = folder.with_extension("complete");
    if complete.exists() {
        return Ok(folder.to_path_buf());
    }
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let release = super::read(Path::new("/etc/os-release"))?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("/etc/os-release names no suite")?;
    let sources = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
    ]))?;
    let mirror = sources.lines().find_map(|line| {
        line.strip_suffix(" main")?.strip_suffix(suite).map(|uri| uri.trim().to_string())
    });
    let mirror = mirror.ok_or("apt has no mirror of this suite")?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", suite]).arg(folder).arg(mirror);
    output(&mut debootstrap)?;
    fs::write(&complete, "").map_err(|why| format!("{}: {why}", complete.display()))?;
    Ok(folder.to_path_buf())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deb,
    Rpm,
}

/// Installs a package in a copy of the system, uses it, removes it, and looks for what is left.
fn in_system(system: &Path, folder: &Path, kind: Kind, package: &Path) -> Result<String, String> {
    let root = folder.join(format!("{kind:?}"));
    let _ = fs::remove_dir_all(&root);
    output(Command::new("cp").arg("-a").arg(system).arg(&root))?;
    let inside = root.join("package");
    fs::copy(package, &inside).map_err(|why| format!("{}: {why}", package.display()))?;
    let before = names_below(&root)?;
    // With a `/proc` that no other process sees, and that is gone with the command.
    let chroot = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "sh",
            "-c",
            "mount -t proc proc \"$0/proc\"; exec chroot \"$0\" \"$@\"",
        ]);
        output(unshare.arg(&root).args(words).env("HOME", HOME))
    };
    let rpm = |words: &[&str]| output(Command::new("rpm").arg("--root").arg(&root).args(words));
    match kind {
        Kind::Deb => chroot(&["dpkg", "--install", "/package"])?,
        Kind::Rpm => rpm(&["--install", "--nodeps", &inside.display().to_string()])?,
    };
    let added = names_below(&root)?.difference(&before).count();
    chroot(&["datapump", "demo"])?;
    chroot(&["datapump-peer", "--version"])?;
    match kind {
        Kind::Deb => chroot(&["dpkg", "--purge", "datapump"])?,
        Kind::Rpm => rpm(&["--erase", "datapump"])?,
    };
    let after = names_below(&root)?;
    let left: Vec<_> = after.symmetric_difference(&before).cloned().collect();
    match left.is_empty() {
        true => Ok(format!("{added} names installed, demo and far side run, nothing is left")),
        false => Err(format!("differs after the removal: {}", left.join(", "))),
    }
}

/// Where the programs under check keep what they record: it is the user's, not the package's.
const HOME: &str = "/tmp/home-of-the-check";

/// Every name below a folder, but for the records of the package managers themselves.
fn names_below(root: &Path) -> Result<BTreeSet<String>, String> {
    let kept = [
        "var/lib/dpkg",
        "var/lib/rpm",
        "usr/lib/sysimage",
        "var/log",
        "proc",
        "dev",
        "root/.rpmdb",
    ];
    let kept: Vec<&str> = kept.into_iter().chain([&HOME[1..]]).collect();
    let mut names = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for path in listed(&folder)? {
            let name = path.strip_prefix(root).unwrap_or(&path);
            if kept.iter().any(|kept| name.starts_with(kept)) {
                continue;
            }
            names.insert(name.display().to_string());
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    Ok(names)
}

fn in_venv(folder: &Path, wheel: &Path) -> Result<String, String> {
    let _ = fs::remove_dir_all(folder);
    output(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(folder))?;
    let pip = |words: &[&str]| output(Command::new(folder.join("bin/pip")).args(words));
    let before = names_below(folder)?;
    pip(&["install", "--no-index", &wheel.display().to_string()])?;
    let added = names_below(folder)?.difference(&before).count();
    output(Command::new(folder.join("bin/datapump")).arg("demo").env("HOME", HOME))?;
    pip(&["uninstall", "--yes", "datapump"])?;
    let after = names_below(folder)?;
    // pip leaves folders that it made for data.
    let left: Vec<_> =
        after.difference(&before).filter(|name| !folder.join(name).is_dir()).collect();
    match left.is_empty() {
        true => Ok(format!("{added} names installed, demo runs, no file is left")),
        false => Err(format!("left: {left:?}")),
    }
}

fn unpacked(folder: &Path, tarball: &Path) -> Result<String, String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    output(Command::new("tar").arg("-xzf").arg(tarball).arg("-C").arg(folder))?;
    let top = listed(folder)?.pop().ok_or("the archive is empty")?;
    output(Command::new(top.join("bin/datapump")).arg("demo").env("HOME", HOME))?;
    output(Command::new(top.join("bin/datapump")).arg("--version"))
        .map(|said| said.trim().replace('\n', "; "))
}

/// Copies a tree to and from the far side for aarch64, which an emulator runs on this machine.
fn emulated(release: &Release, here: Arch, folder: &Path) -> Result<String, String> {
    let other = ARCHES.iter().find(|arch| arch.name == "aarch64").ok_or("no aarch64")?;
    let _ = fs::remove_dir_all(folder);
    let ssh = folder.join("ssh.sh");
    let peer = release.program(*other, "datapump-peer");
    let script = format!("#!/bin/sh\nexec qemu-aarch64-static {} peer\n", peer.display());
    super::stage::put(&ssh, 0o755, script.as_bytes())?;
    let from = release.source.join("docs");
    let program = release.program(here, "datapump");
    let (there, back) = (folder.join("there"), folder.join("back"));
    let far = format!("127.0.0.1:{}", there.display());
    let docs = format!("{}/", from.display());
    for (source, target) in [(docs, far.clone()), (format!("{far}/"), back.display().to_string())] {
        let mut copy = Command::new(&program);
        copy.args(["copy", "-r", "--ssh"]).arg(&ssh).args([source, target]);
        output(copy.env("DATAPUMP_NO_RECORD", "1"))?;
    }
    output(Command::new("diff").arg("-r").arg(&from).arg(&there))?;
    output(Command::new("diff").arg("-r").arg(&from).arg(&back))?;
    Ok("docs/ copied there and back, byte for byte".to_string())
}

/// The least time of some starts, which other work on this machine disturbs least.
fn start_time(release: &Release, here: Arch) -> Result<String, String> {
    let program = release.program(here, "datapump-peer");
    let mut least = f64::INFINITY;
    for _ in 0..STARTS {
        let start = Instant::now();
        output(Command::new(&program).arg("--version"))?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    let bytes = fs::metadata(&program).map_err(|why| why.to_string())?.len();
    match least < START_SECONDS_MAX {
        true => Ok(format!("{:.1} ms, {bytes} bytes", least * 1e3)),
        false => Err(format!("{:.1} ms", least * 1e3)),
    }
}

const STARTS: usize = 20;
const START_SECONDS_MAX: f64 = 0.010;
