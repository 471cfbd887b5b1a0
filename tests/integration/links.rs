//! `--links safe`: links that lead out of what is copied stay behind, as with `rsync --safe-links`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{Scene, data, each, need, need_root};

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

/// With `-A` a link keeps its own attributes. Of several names of one link the user is told.
#[test]
fn links_have_attributes_and_names() {
    need_root("only root sets attributes of links");
    let ways = [("", ""), ("", "far:"), ("far:", "")];
    each(ways, |(from, to)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        symlink("nowhere", scene.path("src/link")).unwrap();
        fs::hard_link(scene.path("src/link"), scene.path("src/other")).unwrap();
        let mut set = Command::new(need("setfattr", "attr"));
        set.args(["-h", "-n", "trusted.k", "-v", "value"]).arg(scene.path("src/link"));
        assert!(set.status().unwrap().success());
        let ran = scene.succeed(&format!("copy -rA {from}@/src/ {to}@/dst"));
        assert_eq!(ran.stderr.matches("several names").count(), 1, "{ran}");
        for name in ["link", "other"] {
            let mut get = Command::new(need("getfattr", "attr"));
            get.args(["-h", "--only-values", "-n", "trusted.k"]);
            let got = get.arg(scene.path("dst").join(name)).output().unwrap();
            assert_eq!(got.stdout, b"value", "{name}\n{ran}");
        }
    });
}

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
