//! Which packages of the project may depend on which others, and on which other crates not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The project's packages that a package may depend on, in a user's build.
const PACKAGES: &[(&str, &[&str])] = &[
    ("datapump-base", &[]),
    ("datapump-mover", &["datapump-base"]),
    ("datapump-analysis", &["datapump-base"]),
    ("datapump-s3", &["datapump-base", "datapump-mover"]),
    ("datapump", &["datapump-analysis", "datapump-base", "datapump-mover", "datapump-s3"]),
];

/// What nothing in the mover may depend on: async runtimes and crates that need them, the store,
/// exports, models, and the command line.
const NOT_IN_THE_MOVER: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "async-executor",
    "futures-executor",
    "hyper",
    "reqwest",
    "rusqlite",
    "libsqlite3-sys",
    "parquet",
    "nalgebra",
    "statrs",
    "csv",
    "serde_json",
    "clap",
    "indicatif",
];

/// What `analysis` may not depend on: it is pure, so it has no use for sockets, files or threads.
const NOT_IN_ANALYSIS: &[&str] = &["tokio", "rustix", "socket2", "tempfile", "signal-hook", "clap"];

#[test]
fn packages_reach_what_they_may() {
    let reached = reached();
    for (name, allowed) in PACKAGES {
        let ours = reached[*name].iter().filter(|other| other.starts_with("datapump"));
        let strange: Vec<_> = ours.filter(|other| !allowed.contains(&other.as_str())).collect();
        assert!(strange.is_empty(), "{name} reaches {strange:?}");
    }
    for (name, banned) in
        [("datapump-mover", NOT_IN_THE_MOVER), ("datapump-analysis", NOT_IN_ANALYSIS)]
    {
        let found: Vec<_> = banned.iter().filter(|other| reached[name].contains(**other)).collect();
        assert!(
            found.is_empty(),
            "{name} reaches {found:?}: cargo tree -p {name} -i NAME says how"
        );
    }
    // A rule that sees nothing passes everything: the program's own dependencies must be seen.
    for name in ["rusqlite", "nalgebra", "clap", "rustls", "datapump-base"] {
        assert!(reached["datapump"].contains(name), "datapump is not seen to reach {name}");
    }
}

/// All dependencies of each package, by normal links, on this platform, as Cargo resolved them.
fn reached() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let list = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let names: BTreeMap<String, String> = list(&metadata, "packages")
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let is_normal = |dependency: &Value| {
        list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null())
    };
    let links: BTreeMap<String, Vec<String>> = list(&metadata["resolve"], "nodes")
        .iter()
        .map(|node| {
            let all = list(node, "deps").into_iter().filter(is_normal);
            (text(&node["id"]), all.map(|dependency| text(&dependency["pkg"])).collect())
        })
        .collect();
    let from = |id: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), links[id].clone());
        while let Some(id) = open.pop() {
            if seen.insert(names[&id].clone()) {
                open.extend(links[&id].clone());
            }
        }
        seen
    };
    links.keys().map(|id| (names[id].clone(), from(id))).collect()
}

fn metadata() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &platform];
    let ran = Command::new(env!("CARGO")).args(arguments).current_dir(root).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// What `deny.toml` says of licences, bans and sources holds for every package that Cargo resolves:
/// checked here, so that no other tool must be built for it.
#[test]
fn dependencies_are_allowed() {
    let rules = include_str!("../../deny.toml");
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_string);
    let list = |key: &str| -> Vec<String> {
        let lines = rules.lines().skip_while(|line| *line != format!("{key} = ["));
        lines.skip(1).take_while(|line| *line != "]").filter_map(quoted).collect()
    };
    let (allow, deny) = (list("allow"), list("deny"));
    assert!(allow.len() > 5 && deny.len() > 3, "deny.toml is not read: {allow:?}, {deny:?}");
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let mut findings = Vec::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_string();
        let (name, licence, source) = (text("name"), text("license"), text("source"));
        if !is_licensed(&licence, &allow) {
            findings.push(format!("{name}: the licence '{licence}' is not allowed"));
        }
        if deny.contains(&name) {
            findings.push(format!("{name} is banned"));
        }
        if !source.is_empty() && !source.starts_with("registry+") {
            findings.push(format!("{name} comes from {source}"));
        }
    }
    assert!(packages.len() > 100, "only {} packages are seen", packages.len());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    // The rule bites.
    let only_mit = ["MIT".to_string()];
    for (licence, expect) in [
        ("MIT", true),
        ("Apache-2.0/MIT", true),
        ("MIT AND ISC", false),
        ("(MIT OR ISC) AND MIT", true),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(is_licensed(licence, &only_mit), expect, "{licence}");
    }
}

/// Whether an SPDX expression can be met by licences of the list; `/` is an old form of OR.
fn is_licensed(expression: &str, allow: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let all = expression.split(" AND ").map(|part| part.trim_matches(['(', ')', ' ']));
    all.into_iter().all(|part| {
        part.split(" OR ").any(|one| {
            let one = one.trim_matches(['(', ')', ' ']);
            allow.iter().any(|allowed| allowed == one)
        })
    })
}
