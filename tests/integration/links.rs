//! `--links safe`: links that lead out of what is copied stay behind, as with `rsync --safe-links`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{Scene, data, each, need};

/// A link below the source, and where it leads.
const LINKS: [(&str, &str); 18] = [
    ("same", "file"),
    ("down", "d/e/file"),
    ("dot", "./file"),
    ("dangling", "nothing"),
    ("d/up", "../file"),
    ("d/e/far-up", "../../file"),
    ("d/e/up-down", "../../d/e/file"),
    ("d/root", ".."),
    ("absolute", "/etc/passwd"),
    ("d/slash", "/"),
    ("parent", ".."),
    ("beside", "../beside"),
    ("d/too-far", "../../beside"),
    ("d/e/too-far", "../../../beside"),
    ("hidden", "./../beside"),
    ("d/hidden", "..//../beside"),
    ("through", "d/../../beside"),
    ("d/down-up", "e/../../../beside"),
];

#[test]
fn links_that_lead_out_are_left_out() {
    let ways = [
        ("@/src/", "@/dst"),
        ("@/src", "@/dst/"),
        ("@/src/", "far:@/dst"),
        ("far:@/src/", "@/dst"),
    ];
    each(ways, |(from, to)| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("src/d/e")).unwrap();
        fs::write(scene.path("src/file"), b"x").unwrap();
        for (link, target) in LINKS {
            symlink(target, scene.path("src").join(link)).unwrap();
        }
        let ran = scene.succeed(&format!("copy -r --links safe {from} {to}"));
        let mut rsync = Command::new(need("rsync", "rsync"));
        rsync
            .args(["-rl", "--safe-links"])
            .args(scene.words(from.trim_start_matches("far:")))
            .arg(scene.path("theirs/"));
        assert!(rsync.output().unwrap().status.success());
        let (ours, theirs) = (links(&scene.path("dst")), links(&scene.path("theirs")));
        assert_eq!(ours, theirs, "{ran}");
        let left_out = LINKS.len() - ours.len();
        assert!(left_out > 0 && !ours.is_empty());
        assert_eq!(ran.stderr.matches("leads out").count(), left_out, "{ran}");
    });
}

/// The links below a folder.
fn links(root: &Path) -> BTreeSet<String> {
    let found = data::files_below(root).into_iter().filter(|path| path.is_symlink());
    found.map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}
