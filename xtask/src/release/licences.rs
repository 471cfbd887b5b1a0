//! The licences of what is linked into the programs: a static program carries them along.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Arch, Release, listed, read, sbom};

/// Each text once, under the packages that it is the licence of.
pub(super) fn of_others(release: &Release, arch: Arch) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for one in sbom::linked(release, arch)?.iter().filter(|one| one.is_other) {
        let name = format!("{} {}", one.name, one.version);
        list.push_str(&format!("{name}: {}\n", one.licence));
        let folder = Path::new(&one.manifest).parent().unwrap_or(Path::new("/"));
        // Packages of C code keep it in a folder below their own.
        let depth = if one.name.ends_with("-sys") { C_FOLDERS_DEEP } else { 0 };
        for path in licences_in(folder, depth)? {
            if let Ok(text) = read(&path) {
                let users = texts.entry(text.trim_end().to_string()).or_default();
                if users.last() != Some(&name) {
                    users.push(name.clone());
                }
            }
        }
    }
    let mut all = format!("The programs are linked from these packages:\n\n{list}");
    for (text, users) in texts {
        all.push_str(&format!(
            "\n{}\n\nLicence of {}:\n\n{text}\n",
            "-".repeat(78),
            users.join(", ")
        ));
    }
    Ok(all)
}

fn licences_in(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for path in listed(folder)? {
        if path.is_file() && is_licence(&path) {
            found.push(path);
        } else if path.is_dir() && depth > 0 {
            found.extend(licences_in(&path, depth - 1)?);
        }
    }
    Ok(found)
}

const C_FOLDERS_DEEP: usize = 3;

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
        .iter()
        .any(|part| name.starts_with(part))
}
