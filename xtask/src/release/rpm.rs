//! The RPM package: `rpmbuild` packs what is staged already.

use std::fs;
use std::path::Path;

use super::stage::{DOCUMENTS, LICENCES, Papers, copy, link, put, put_completions, put_programs};
use super::{Arch, Release, listed, read};
use xtask::step::run;

pub(super) fn rpm(release: &Release, arch: Arch, papers: &Papers) -> Result<(), String> {
    let parts = release.empty("rpm")?;
    let top = parts.join("files");
    put_programs(release, arch, &top.join("usr/bin"), &top.join("usr/lib/datapump"))?;
    let peer = format!("../lib/datapump/datapump-peer-{}", arch.name);
    link(&peer, &top.join("usr/bin/datapump-peer"))?;
    for (page, text) in &papers.man {
        put(&top.join("usr/share/man/man1").join(page), 0o644, text.as_bytes())?;
    }
    put_completions(&top.join("usr/share"), "zsh/site-functions", papers)?;
    for file in DOCUMENTS {
        copy(&release.source.join(file), &top.join("usr/share/doc/datapump").join(file), 0o644)?;
    }
    let licences = top.join("usr/share/licenses/datapump");
    for file in LICENCES {
        copy(&release.source.join(file), &licences.join(file), 0o644)?;
    }
    put(&licences.join("LICENSES-OTHERS"), 0o644, papers.others.as_bytes())?;
    let spec = parts.join("datapump.spec");
    put(&spec, 0o644, spec_text(release, &top)?.as_bytes())?;
    let mut rpmbuild = release.command("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target", arch.name]).arg(&spec);
    let topdir = parts.join("build").display().to_string();
    let defined = [
        ("_topdir", topdir.as_str()),
        ("_rpmdir", &release.out.display().to_string()),
        ("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        ("_buildhost", "localhost"),
        ("_build_id_links", "none"),
        ("_binary_payload", "w9.gzdio"),
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("debug_package", "%{nil}"),
        ("__os_install_post", "%{nil}"),
    ];
    for (name, value) in defined {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    run(&format!("datapump-{}-1.{}.rpm", release.version, arch.name), &mut rpmbuild)
}

fn spec_text(release: &Release, top: &Path) -> Result<String, String> {
    let text = read(&release.source.join("packaging/datapump.spec"))?;
    let mut files = Vec::new();
    list(top, top, &mut files)?;
    let filled = [
        ("@VERSION@", release.version.clone()),
        ("@FILES@", top.display().to_string()),
        ("@LIST@", files.join("\n")),
    ];
    Ok(filled.iter().fold(text, |text, (mark, value)| text.replace(mark, value)))
}

/// Every file, and the folders that no package of every system has.
fn list(top: &Path, folder: &Path, files: &mut Vec<String>) -> Result<(), String> {
    for path in listed(folder)? {
        let below = path.strip_prefix(top).unwrap_or(&path);
        let name = format!("/{}", below.display());
        let meta = fs::symlink_metadata(&path).map_err(|why| format!("{path:?}: {why}"))?;
        if meta.is_dir() {
            let of_shells = ["fish", "zsh", "bash-completion", "licenses"];
            let below_those = of_shells.map(|of| format!("/usr/share/{of}"));
            if path.ends_with("datapump") || below_those.iter().any(|of| name.starts_with(of)) {
                files.push(format!("%dir {name}"));
            }
            list(top, &path, files)?;
        } else if name.starts_with("/usr/share/licenses") {
            files.push(format!("%license {name}"));
        } else if name.starts_with("/usr/share/doc") || name.starts_with("/usr/share/man") {
            files.push(format!("%doc {name}"));
        } else {
            files.push(name);
        }
    }
    Ok(())
}
