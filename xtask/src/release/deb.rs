//! The Debian package: built by `dpkg-deb`, which clamps times to `SOURCE_DATE_EPOCH`.

use std::fs;
use std::path::Path;

use super::stage::{DOCUMENTS, Papers, compressed, copy, link, put, put_completions, put_programs};
use super::{Arch, Release, read};
use xtask::step::run;

pub(super) fn deb(release: &Release, arch: Arch, papers: &Papers) -> Result<(), String> {
    let top = release.empty("deb")?;
    let doc = top.join("usr/share/doc/datapump");
    put_programs(release, arch, &top.join("usr/bin"), &top.join("usr/lib/datapump"))?;
    let peer = format!("../lib/datapump/datapump-peer-{}", arch.name);
    link(&peer, &top.join("usr/bin/datapump-peer"))?;
    for (page, text) in &papers.man {
        packed(release, &top.join("usr/share/man/man1").join(page), text)?;
    }
    put_completions(&top.join("usr/share"), "zsh/vendor-completions", papers)?;
    copy(&release.source.join(DOCUMENTS[0]), &doc.join(DOCUMENTS[0]), 0o644)?;
    packed(release, &doc.join("changelog"), &read(&release.source.join(DOCUMENTS[1]))?)?;
    packed(release, &doc.join("changelog.Debian"), &changelog(release)?)?;
    let copyright = read(&release.source.join("packaging/copyright"))?;
    put(&doc.join("copyright"), 0o644, copyright.as_bytes())?;
    // Debian's copyright files do not repeat licences that each system has anyway.
    packed(release, &doc.join("linked-packages"), &papers.others)?;
    let overrides = read(&release.source.join("packaging/lintian-overrides"))?;
    put(&top.join("usr/share/lintian/overrides/datapump"), 0o644, overrides.as_bytes())?;
    put(&top.join("DEBIAN/control"), 0o644, control(release, arch, &top)?.as_bytes())?;
    let name = format!("datapump_{}-1_{}.deb", release.version, arch.debian);
    let mut dpkg = release.command("dpkg-deb");
    dpkg.args(["--root-owner-group", "--threads-max=1", "-Zxz", "--build"]);
    run(&name, dpkg.arg(&top).arg(release.out.join(&name)))
}

/// Writes a text as Debian keeps it: `FILE.gz`.
fn packed(release: &Release, path: &Path, text: &str) -> Result<(), String> {
    put(path, 0o644, text.as_bytes())?;
    let bytes = compressed(release, &path.to_path_buf())?;
    fs::remove_file(path).map_err(|why| format!("{}: {why}", path.display()))?;
    put(
        &path.with_file_name(format!("{}.gz", path.file_name().unwrap_or_default().display())),
        0o644,
        &bytes,
    )
}

fn control(release: &Release, arch: Arch, top: &Path) -> Result<String, String> {
    let text = read(&release.source.join("packaging/control"))?;
    let filled = [
        ("@VERSION@", format!("{}-1", release.version)),
        ("@ARCH@", arch.debian.to_string()),
        ("@KIB@", (bytes_below(top)? / 1024).to_string()),
    ];
    Ok(filled.iter().fold(text, |text, (mark, value)| text.replace(mark, value)))
}

fn bytes_below(folder: &Path) -> Result<u64, String> {
    let mut bytes = 0;
    for path in super::listed(folder)? {
        let meta = fs::symlink_metadata(&path).map_err(|why| format!("{path:?}: {why}"))?;
        bytes += if meta.is_dir() { bytes_below(&path)? } else { meta.len() };
    }
    Ok(bytes)
}

fn changelog(release: &Release) -> Result<String, String> {
    let mut date = release.command("date");
    let date = xtask::step::output(date.arg("-R").arg("-d").arg(format!("@{}", release.epoch)))?;
    let control = read(&release.source.join("packaging/control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.ok_or("packaging/control names no maintainer")?;
    Ok(format!(
        "datapump ({}-1) unstable; urgency=medium\n\n  * Version {}: see changelog.gz.\n\n \
         -- {maintainer}  {}\n",
        release.version,
        release.version,
        date.trim()
    ))
}
