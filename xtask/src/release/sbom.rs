//! What is linked into the programs: from cargo's own resolution, as CycloneDX, and as the list of
//! packages whose licences go along.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::{Arch, Release};
use xtask::step::{cargo, output};

/// A package that is linked into a program.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub id: String,
    pub name: String,
    pub version: String,
    pub licence: String,
    pub manifest: String,
    /// True for what is no part of this project.
    pub is_other: bool,
    pub needs: BTreeSet<String>,
}

/// The packages that `datapump` is linked from, itself first.
pub(super) fn linked(release: &Release, arch: Arch) -> Result<Vec<Linked>, String> {
    let words = format!("metadata --format-version 1 --locked --filter-platform {}", arch.triple);
    let text = output(cargo(&words).current_dir(&release.source))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|why| format!("metadata: {why}"))?;
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in array(&metadata["resolve"]["nodes"]) {
        let normal = array(&node["deps"])
            .iter()
            .filter(|need| array(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
        needs.insert(text_of(&node["id"]), normal.map(|need| text_of(&need["pkg"])).collect());
    }
    let packages = array(&metadata["packages"]);
    // They run in the compiler.
    let macros: BTreeSet<String> =
        packages.iter().filter(|it| is_macro(it)).map(|it| text_of(&it["id"])).collect();
    let root = packages.iter().find(|package| package["name"] == "datapump");
    let mut left = vec![text_of(&root.ok_or("no package is named datapump")?["id"])];
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !macros.contains(&id) && found.insert(id.clone()) {
            left.extend(needs.get(&id).into_iter().flatten().cloned());
        }
    }
    let linked = packages.iter().filter(|package| found.contains(&text_of(&package["id"])));
    let mut linked: Vec<Linked> = linked.map(|package| one(package, &needs)).collect();
    linked.sort_by_key(|one| (one.name != "datapump", one.name.clone(), one.version.clone()));
    Ok(linked)
}

fn one(package: &Value, needs: &BTreeMap<String, BTreeSet<String>>) -> Linked {
    let id = text_of(&package["id"]);
    Linked {
        needs: needs.get(&id).cloned().unwrap_or_default(),
        id,
        name: text_of(&package["name"]),
        version: text_of(&package["version"]),
        licence: text_of(&package["license"]),
        manifest: text_of(&package["manifest_path"]),
        is_other: !package["source"].is_null(),
    }
}

/// `datapump-VERSION-ARCH.cdx.json`.
pub(super) fn sbom(release: &Release, arch: Arch) -> Result<(), String> {
    let linked = linked(release, arch)?;
    let url = |one: &Linked| format!("pkg:cargo/{}@{}", one.name, one.version);
    let urls: BTreeMap<&str, String> =
        linked.iter().map(|one| (one.id.as_str(), url(one))).collect();
    let component = |one: &Linked, kind: &str| {
        json!({
            "type": kind,
            "bom-ref": url(one),
            "name": one.name,
            "version": one.version,
            "purl": url(one),
            "licenses": [{ "expression": one.licence }],
        })
    };
    let mut date = release.command("date");
    let date =
        output(date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{}", release.epoch)))?;
    let needs = |one: &Linked| -> Vec<&String> {
        one.needs.iter().filter_map(|id| urls.get(id.as_str())).collect()
    };
    let all = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date.trim(),
            "component": component(&linked[0], "application"),
            "properties": [
                { "name": "target", "value": arch.triple },
                { "name": "commit", "value": release.commit },
            ],
        },
        "components": linked[1..].iter().map(|one| component(one, "library")).collect::<Vec<_>>(),
        "dependencies": linked
            .iter()
            .map(|one| json!({ "ref": url(one), "dependsOn": needs(one) }))
            .collect::<Vec<_>>(),
    });
    let name = format!("datapump-{}-{}.cdx.json", release.version, arch.name);
    let text = serde_json::to_string_pretty(&all).map_err(|why| format!("{name}: {why}"))?;
    fs::write(release.out.join(&name), text + "\n").map_err(|why| format!("{name}: {why}"))
}

fn is_macro(package: &Value) -> bool {
    let kinds = array(&package["targets"]).iter().flat_map(|target| array(&target["kind"]));
    kinds.into_iter().any(|kind| kind == "proc-macro")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}
