//! A store of another make than the gateway: it keeps no CRC-64/NVME of whole objects, and names
//! what it refuses in other words.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::stores_resume::journals;
use crate::support::gateway::{
    Fault, FaultyStore, Gateway, Rule, file_of, no_difference_for_rsync, set_mtime,
};
use crate::support::{Scene, each, run, until};

const MIB: u64 = 1 << 20;

/// One server for all cases: it takes seconds to start.
#[test]
fn a_store_of_another_make_does_the_same() {
    let gateway = Gateway::moto();
    type Check = fn(&Gateway, &Scene);
    let cases: [(&str, Check); 5] = [
        ("objects of all sizes", sizes),
        ("a tree and its metadata", tree),
        ("a pipe, and digests", pipe),
        ("a name that exists", exists),
        ("a killed upload", killed),
    ];
    each(cases, |(_, check)| check(&gateway, &Scene::new()));
}

/// What it has completed, and tells no checksum of, is known by its ETag: when the answer was lost,
/// and in the next run.
#[test]
fn what_has_no_checksum_is_known_by_its_tag() {
    let (gateway, scene) = (Arc::new(Gateway::moto()), Scene::new());
    fs::create_dir(scene.path("t")).unwrap();
    file_of(&scene.path("t/a"), 13 * MIB + 5, 3);
    file_of(&scene.path("t/z"), 100, 4);
    let rule = |method, target, times, fault| Rule { method, target, after: 0, times, fault };
    let lost = FaultyStore::new(&gateway, rule("POST", "uploadId", 1, Fault::LostAnswer));
    let ran = run::to_end(gateway.command(&scene, "copy @/t/a s3:/lost", lost.port), b"");
    assert_eq!((ran.code, lost.applied.load(Relaxed)), (0, 1), "{ran}");
    let line = "copy -r @/t s3:/d/";
    // One proxy for both runs: a journal is one of an endpoint.
    let store = FaultyStore::new(&gateway, rule("PUT", "/t/z", 1, Fault::Silence));
    let mut child = gateway.command(&scene, line, store.port).spawn().unwrap();
    // It is looked at after its completion, as the answer to that has no checksum.
    until("one of two is complete, and the other is held", || {
        let seen = store.seen.lock().unwrap();
        let completed = |line: &String| line.starts_with("POST") && line.contains("uploadId=");
        let after = seen.iter().skip_while(|line| !completed(line));
        let mut after = after.filter(|line| line.starts_with("HEAD"));
        store.applied.load(Relaxed) == 1 && after.any(|line| line.contains("/t/a"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let before = store.seen.lock().unwrap().len();
    let ran = run::to_end(gateway.command(&scene, line, store.port), b"");
    assert_eq!(ran.code, 0, "{ran}");
    let seen = store.seen.lock().unwrap()[before..].join("\n");
    assert!(!seen.contains("partNumber") && seen.contains("/t/z"), "{seen}\n{ran}");
    for key in ["lost", "d/t/a"] {
        gateway.succeed(&scene, &format!("copy s3:/{key} @/back --overwrite always"));
        assert!(fs::read(scene.path("back")).unwrap() == fs::read(scene.path("t/a")).unwrap());
    }
}

fn sizes(gateway: &Gateway, scene: &Scene) {
    for size in [0, 1, 8 * MIB, 17 * MIB + 3] {
        file_of(&scene.path("a"), size, size);
        let up = gateway.succeed(scene, &format!("copy @/a s3:/d/{size} --overwrite always"));
        let parts = "only parts were checked";
        assert_eq!(up.stderr.contains(parts), size > 8 * MIB, "{up}");
        gateway.succeed(scene, &format!("copy s3:/d/{size} @/b --overwrite always"));
        assert!(fs::read(scene.path("b")).unwrap() == fs::read(scene.path("a")).unwrap(), "{size}");
    }
}

/// More than a page of a listing, a name that is encoded, a link, modes and times.
fn tree(gateway: &Gateway, scene: &Scene) {
    let tree = scene.path("tree");
    fs::create_dir_all(tree.join("od d+%&ü/empty")).unwrap();
    for number in 0..40 {
        fs::write(tree.join(format!("od d+%&ü/{number}")), format!("{number}")).unwrap();
    }
    symlink("od d+%&ü/1", tree.join("link")).unwrap();
    set_mtime(&tree.join("od d+%&ü/8"), 1, 500);
    set_mtime(&tree.join("od d+%&ü"), 1_000_000_000, 0);
    gateway.succeed(scene, "copy -r -A @/tree s3:/up/");
    gateway.succeed(scene, "copy -r -A s3:/up/tree @/down");
    no_difference_for_rsync(&scene.path("tree/"), &scene.path("down/tree/"));
}

fn pipe(gateway: &Gateway, scene: &Scene) {
    file_of(&scene.path("a"), 13 * MIB + 5, 3);
    let bytes = fs::read(scene.path("a")).unwrap();
    let put = run::to_end(gateway.command(scene, "copy - s3:/piped", gateway.port), &bytes);
    assert_eq!(put.code, 0, "{put}");
    assert!(gateway.succeed(scene, "copy s3:/piped -").stdout == bytes);
    let line = "copy @/a s3:/sums --digest-also md5 --verify disk --manifest @/receipt";
    gateway.succeed(scene, line);
    gateway.succeed(scene, "verify @/receipt s3:/sums");
}

/// What is there stays, and its user is told.
fn exists(gateway: &Gateway, scene: &Scene) {
    for size in [100, 9 * MIB] {
        file_of(&scene.path("one"), size, 1);
        file_of(&scene.path("two"), size, 2);
        gateway.succeed(scene, &format!("copy @/one s3:/once/{size}"));
        let ran = gateway.run(scene, &format!("copy @/two s3:/once/{size}"));
        assert!(ran.code == 3 && ran.stderr.contains("exists"), "{ran}");
        gateway.succeed(scene, &format!("copy s3:/once/{size} @/back --overwrite always"));
        assert!(fs::read(scene.path("back")).unwrap() == fs::read(scene.path("one")).unwrap());
    }
}

fn killed(gateway: &Gateway, scene: &Scene) {
    file_of(&scene.path("a"), 64 * MIB + 5, 1);
    let line = "copy @/a s3:/k/a --request-size 5M";
    let slow = format!("{line} --rate 16MB");
    let mut child = gateway.command(scene, &slow, gateway.port).spawn().unwrap();
    until("parts are recorded", || journals(gateway).iter().any(|journal| journal.len() > 700));
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = gateway.succeed(scene, line);
    assert!(ran.stdout_text().contains("resumed: "), "{ran}");
    gateway.succeed(scene, "copy s3:/k/a @/b");
    assert!(fs::read(scene.path("b")).unwrap() == fs::read(scene.path("a")).unwrap());
    let left = gateway.run(scene, "clean -n --min-age off s3:/k/ --json");
    assert!(!left.stdout_text().contains("would_remove"), "{left}");
    assert_eq!(journals(gateway).len(), 0, "{ran}");
}
