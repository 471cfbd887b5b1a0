//! `cargo xtask release`: the programs of a commit, and all packages of them, made so that another
//! run makes the same bytes. docs/decisions/0061 has what was weighed.

mod build;
mod check;
mod deb;
mod licences;
mod rpm;
mod sbom;
mod stage;
mod sums;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::packages;
use xtask::step::{output, root, target_folder};

/// What is made, and of what.
#[derive(Clone, Debug)]
pub(super) struct Release {
    /// The checkout that is built.
    source: PathBuf,
    /// Cargo's folder of build outputs.
    target: PathBuf,
    /// Where the packages go.
    out: PathBuf,
    version: String,
    commit: String,
    /// When the commit was made, in seconds: the only time that gets into a package.
    epoch: String,
    profile: String,
    arches: Vec<Arch>,
    programs: Programs,
}

/// Where the programs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    Built,
    /// They lie in cargo's folder already: to try the packages alone.
    Found,
}

/// A processor that there are programs for. The first is the one that `uname -m` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arch {
    name: &'static str,
    triple: &'static str,
    debian: &'static str,
}

const ARCHES: &[Arch] = &[
    Arch { name: "x86_64", triple: "x86_64-unknown-linux-musl", debian: "amd64" },
    Arch { name: "aarch64", triple: "aarch64-unknown-linux-musl", debian: "arm64" },
];

pub(crate) fn release(options: &[&str]) -> Result<(), String> {
    let (mut checked, mut programs) = (false, Programs::Built);
    let (mut profile, mut out, mut arches) = ("dist", None, ARCHES.to_vec());
    let mut options = options.iter().copied();
    while let Some(option) = options.next() {
        let mut value = || options.next().ok_or_else(|| format!("release: {option} needs a value"));
        match option {
            "--check" => checked = true,
            "--pack-only" => programs = Programs::Found,
            "--profile" => profile = value()?,
            "--out" => out = Some(PathBuf::from(value()?)),
            "--arch" => arches = arches_named(value()?)?,
            other => return Err(format!("release: unknown option {other}: {OPTIONS}")),
        }
    }
    packages::ensure(packages::FOR_RELEASE)?;
    let source = root();
    let git = |words: &str| in_git(&source, words);
    let modified = if git("status --porcelain")?.is_empty() { "" } else { "-modified" };
    let release = Release {
        target: target_folder(),
        out: out.unwrap_or_else(|| target_folder().join("packages")),
        version: version(&source)?,
        commit: git("rev-parse HEAD")? + modified,
        epoch: git("log -1 --format=%ct")?,
        profile: profile.to_string(),
        arches,
        programs,
        source,
    };
    match checked {
        true => check::check(&release),
        false => release.make(),
    }
}

impl Release {
    /// Builds the programs and makes every package.
    fn make(&self) -> Result<(), String> {
        let _ = fs::remove_dir_all(&self.out);
        fs::create_dir_all(&self.out).map_err(|why| format!("{}: {why}", self.out.display()))?;
        if self.programs == Programs::Built {
            build::build(self)?;
        }
        for arch in &self.arches {
            let papers = stage::papers(self, *arch)?;
            stage::tarball(self, *arch, &papers)?;
            deb::deb(self, *arch, &papers)?;
            rpm::rpm(self, *arch, &papers)?;
            wheel::wheel(self, *arch, &papers)?;
            sbom::sbom(self, *arch)?;
        }
        sums::write(&self.out)?;
        println!("\n{}", self.out.display());
        for path in listed(&self.out)? {
            let bytes = fs::metadata(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            println!("{:>12} {}", bytes.len(), path.file_name().unwrap_or_default().display());
        }
        Ok(())
    }

    /// A built program.
    fn program(&self, arch: Arch, name: &str) -> PathBuf {
        self.target.join(arch.triple).join(&self.profile).join(name)
    }

    /// An empty folder for the parts of one package.
    fn empty(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.target.join("release-parts").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(folder)
    }

    /// A command that takes the time of the commit for its own.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        command
    }
}

fn arches_named(list: &str) -> Result<Vec<Arch>, String> {
    let find = |name: &str| ARCHES.iter().find(|arch| arch.name == name).copied();
    let named = list.split(',').map(|name| find(name).ok_or_else(|| format!("no arch '{name}'")));
    named.collect()
}

/// `version` of `[workspace.package]`.
fn version(source: &Path) -> Result<String, String> {
    let manifest = read(&source.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    version.map(str::to_string).ok_or_else(|| "Cargo.toml has no version".to_string())
}

fn in_git(folder: &Path, words: &str) -> Result<String, String> {
    let mut git = Command::new("git");
    let said = output(git.arg("-C").arg(folder).args(words.split(' ')))?;
    Ok(said.trim().to_string())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}

/// The files in a folder, by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

const OPTIONS: &str =
    "write --check, --pack-only, --profile NAME, --arch x86_64,aarch64 or --out DIR";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors() {
        assert_eq!(arches_named("aarch64").unwrap(), [ARCHES[1]]);
        assert_eq!(arches_named("x86_64,aarch64").unwrap(), ARCHES);
        assert!(arches_named("sparc").is_err());
    }

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let version = version(&root()).unwrap();
        assert_eq!(version.split('.').count(), 3, "{version}");
    }
}
