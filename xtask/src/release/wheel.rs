//! The wheel: a program for `pip install` and `pipx run`, packed by Python's own `wheel`.

use super::stage::{LICENCES, Papers, copy, put, put_completions, put_programs};
use super::{Arch, Release, read};
use xtask::step::run;

pub(super) fn wheel(release: &Release, arch: Arch, papers: &Papers) -> Result<(), String> {
    let top = release.empty("wheel")?.join(format!("datapump-{}", release.version));
    let data = top.join(format!("datapump-{}.data", release.version));
    let info = top.join(format!("datapump-{}.dist-info", release.version));
    put_programs(release, arch, &data.join("scripts"), &data.join("data/lib/datapump"))?;
    let share = data.join("data/share");
    for (page, text) in &papers.man {
        put(&share.join("man/man1").join(page), 0o644, text.as_bytes())?;
    }
    put_completions(&share, "zsh/site-functions", papers)?;
    for file in LICENCES {
        copy(&release.source.join(file), &info.join("licenses").join(file), 0o644)?;
    }
    put(&info.join("licenses/LICENSES-OTHERS"), 0o644, papers.others.as_bytes())?;
    let readme = read(&release.source.join("README.md"))?;
    put(&info.join("METADATA"), 0o644, metadata(release, &readme).as_bytes())?;
    put(&info.join("WHEEL"), 0o644, tags(arch).as_bytes())?;
    let mut pack = release.command("/usr/bin/python3");
    pack.args(["-m", "wheel", "pack", "--dest-dir"]).arg(&release.out).arg(&top);
    run(&format!("wheel for {}", arch.name), &mut pack)
}

fn metadata(release: &Release, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: datapump\nVersion: {}\nSummary: Copies files, trees and \
         streams between Linux hosts over parallel TCP streams\nLicense: MIT OR Apache-2.0\n\
         Requires-Python: >=3.7\nClassifier: Environment :: Console\nClassifier: Operating System \
         :: POSIX :: Linux\nDescription-Content-Type: text/markdown\n\n{readme}",
        release.version
    )
}

/// A static program needs no C library: it runs on both kinds of Linux that Python knows.
fn tags(arch: Arch) -> String {
    let platforms = ["manylinux_2_17", "manylinux2014", "musllinux_1_1"];
    let tags = platforms.map(|platform| format!("Tag: py3-none-{platform}_{}\n", arch.name));
    format!(
        "Wheel-Version: 1.0\nGenerator: datapump-xtask\nRoot-Is-Purelib: false\n{}",
        tags.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::super::ARCHES;
    use super::*;

    #[test]
    fn a_static_program_is_for_every_linux() {
        let text = tags(ARCHES[0]);
        assert_eq!(text.matches("Tag: py3-none-").count(), 3);
        assert!(text.contains("Tag: py3-none-musllinux_1_1_x86_64\n"), "{text}");
    }
}
