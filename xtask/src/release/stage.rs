//! What goes into every package: programs, man pages, completions, licences and documents; and the
//! archive that is unpacked by hand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ARCHES, Arch, Release, build, licences, read};
use xtask::step::{output, run};

/// The texts of one processor's packages. They are written by the program for this machine, which
/// writes the same ones for all.
#[derive(Clone, Debug)]
pub(super) struct Papers {
    /// Man pages: `datapump-copy.1`, …
    pub man: Vec<(String, String)>,
    /// By the name that the shell's folder has for them.
    pub bash: String,
    pub zsh: String,
    pub fish: String,
    /// The licences of everything that is linked into the programs.
    pub others: String,
}

/// Documents of the checkout that every package has.
pub(super) const DOCUMENTS: [&str; 2] = ["README.md", "CHANGELOG.md"];
pub(super) const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

pub(super) fn papers(release: &Release, arch: Arch) -> Result<Papers, String> {
    let here = ARCHES.iter().find(|arch| arch.name == std::env::consts::ARCH);
    let here = here.filter(|here| release.arches.contains(here));
    let here = here.ok_or("man pages need the program for this machine: add its --arch")?;
    let said = |words: &str| {
        output(Command::new(release.program(*here, "datapump")).args(words.split_whitespace()))
    };
    let program = said("man")?;
    let mut man = vec![("datapump.1".to_string(), program.clone())];
    for command in commands(&program) {
        man.push((
            format!("datapump-{}.1", command.replace(' ', "-")),
            said(&format!("man {command}"))?,
        ));
    }
    man.push((
        "datapump-peer.1".to_string(),
        read(&release.source.join("packaging/datapump-peer.1"))?,
    ));
    Ok(Papers {
        man,
        bash: said("completions bash")?,
        zsh: said("completions zsh")?,
        fish: said("completions fish")?,
        others: licences::of_others(release, arch)?,
    })
}

/// The commands that the first page lists: `\fBdatapump\-model\-fit(1)\fR`.
fn commands(page: &str) -> Vec<String> {
    let page = page.replace("\\-", "-");
    let known = page.lines().filter_map(|line| {
        let name = line.trim_start_matches("\\fB").trim_end_matches("\\fR");
        name.strip_prefix("datapump-")?.strip_suffix("(1)").map(str::to_string)
    });
    // `net-test` is one word, `model-fit` two.
    known.map(|name| if name == "net-test" { name } else { name.replacen('-', " ", 1) }).collect()
}

/// Writes a file and the folders above it. The mode does not depend on the umask.
pub(super) fn put(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), String> {
    let fault = |why| format!("{}: {why}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(fault)?;
    fs::write(path, bytes).map_err(fault)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fault)
}

pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|why| format!("{}: {why}", from.display()))?;
    put(to, mode, &bytes)
}

/// Puts the programs into `bin`, and into `lib/datapump` the far sides of all processors, by the
/// names that the near side looks for when it sends one.
pub(super) fn put_programs(
    release: &Release,
    arch: Arch,
    bin: &Path,
    lib: &Path,
) -> Result<(), String> {
    copy(&release.program(arch, "datapump"), &bin.join("datapump"), 0o755)?;
    for other in &release.arches {
        let name = format!("datapump-peer-{}", other.name);
        copy(&release.program(*other, build::PROGRAMS[1]), &lib.join(name), 0o755)?;
    }
    Ok(())
}

/// `datapump-VERSION-ARCH-linux.tar.gz`, which runs where it is unpacked.
pub(super) fn tarball(release: &Release, arch: Arch, papers: &Papers) -> Result<(), String> {
    let name = format!("datapump-{}-{}-linux", release.version, arch.name);
    let parts = release.empty("tar")?;
    let top = parts.join(&name);
    put_programs(release, arch, &top.join("bin"), &top.join("lib/datapump"))?;
    link(&format!("../lib/datapump/datapump-peer-{}", arch.name), &top.join("bin/datapump-peer"))?;
    for (page, text) in &papers.man {
        put(&top.join("share/man/man1").join(page), 0o644, text.as_bytes())?;
    }
    put_completions(&top.join("share"), "zsh/site-functions", papers)?;
    for file in DOCUMENTS.iter().chain(&LICENCES) {
        copy(&release.source.join(file), &top.join(file), 0o644)?;
    }
    put(&top.join("LICENSES-OTHERS"), 0o644, papers.others.as_bytes())?;
    archive(release, &parts, &name, &release.out.join(format!("{name}.tar.gz")))
}

pub(super) fn put_completions(share: &Path, zsh: &str, papers: &Papers) -> Result<(), String> {
    let files = [
        ("bash-completion/completions/datapump", &papers.bash),
        (&*format!("{zsh}/_datapump"), &papers.zsh),
        ("fish/vendor_completions.d/datapump.fish", &papers.fish),
    ];
    files.into_iter().try_for_each(|(path, text)| put(&share.join(path), 0o644, text.as_bytes()))
}

pub(super) fn link(target: &str, path: &Path) -> Result<(), String> {
    let fault = |why| format!("{}: {why}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(fault)?;
    std::os::unix::fs::symlink(target, path).map_err(fault)
}

/// An archive whose bytes depend on names, modes and contents alone.
pub(super) fn archive(
    release: &Release,
    folder: &Path,
    name: &str,
    to: &Path,
) -> Result<(), String> {
    let plain = folder.join("archive.tar");
    let mut tar = release.command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg("--mode=u+rwX,go+rX,go-w").arg(format!("--mtime=@{}", release.epoch));
    run(&format!("archive {name}"), tar.arg("-C").arg(folder).arg("-cf").arg(&plain).arg(name))?;
    fs::write(to, compressed(release, &plain)?).map_err(|why| format!("{}: {why}", to.display()))
}

/// Without a name and a time.
pub(super) fn compressed(release: &Release, path: &PathBuf) -> Result<Vec<u8>, String> {
    let packed = release.command("gzip").args(["-9", "-n", "-c"]).arg(path).output();
    let packed = packed.map_err(|why| format!("gzip: {why}"))?;
    match packed.status.success() {
        true => Ok(packed.stdout),
        false => Err(format!("gzip {} failed", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_from_the_first_page() {
        let page = "x\n\\fBdatapump\\-copy(1)\\fR\nCopy\n\\fBdatapump\\-net\\-test(1)\\fR\n\
                    \\fBdatapump\\-model\\-fit(1)\\fR\n";
        assert_eq!(commands(page), ["copy", "net-test", "model fit"]);
    }
}
