//! What a job of `datapump spread` never does: touch what is outside of its destination, or what
//! another job has there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::data::{assert_same, files_below, write_file};
use crate::support::far_spreads::{ran, start};
use crate::support::run::Ran;
use crate::support::swapper::Swapper;
use crate::support::{Scene, each, processes, until, until_some};

/// What is in a folder that nothing may touch, and what the folders in it are like.
fn look(folder: &Path) -> Vec<(String, u64, i64, i64, u32)> {
    let mut all = files_below(folder);
    let parents: Vec<_> = all.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    let mut folders: Vec<_> = parents.iter().filter(|above| above.starts_with(folder)).collect();
    folders.dedup();
    let mut folders: Vec<_> = folders.into_iter().map(|folder| folder.to_path_buf()).collect();
    folders.push(folder.to_path_buf());
    all.extend(folders);
    let line = |path: &std::path::PathBuf| {
        let meta = fs::symlink_metadata(path).unwrap();
        let (size, mtime) = (meta.len(), (meta.mtime(), meta.mtime_nsec()));
        (path.display().to_string(), size, mtime.0, mtime.1, meta.mode())
    };
    all.iter().map(line).collect()
}

fn outside(scene: &Scene) -> std::path::PathBuf {
    let outside = scene.path("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    write_file(&outside.join("kept"), 1, 100);
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    outside
}

fn names_below(folder: &Path) -> Vec<String> {
    let name = |path: std::path::PathBuf| {
        path.strip_prefix(folder).unwrap().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = files_below(folder).into_iter().map(name).collect();
    names.sort();
    names
}

/// A link that the job itself copies, or that somebody has planted, stands where a folder of the
/// source belongs: nothing goes through it, it is told, and the rest is copied.
#[test]
fn links_lead_nothing_out() {
    let cases = [("", "planned"), ("", "planted"), ("far:", "planned"), ("far:", "planted")];
    each(cases, |(host, link)| {
        let scene = Scene::new();
        let outside = outside(&scene);
        for folder in ["a", "b/x/sub", "dst"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
        }
        fs::set_permissions(scene.path("b/x"), fs::Permissions::from_mode(0o777)).unwrap();
        for (number, name) in ["a/one", "b/two", "b/x/keys", "b/x/sub/keys"].iter().enumerate() {
            write_file(&scene.path(name), number as u64, 1000);
        }
        let place = if *link == "planned" { "a/x" } else { "dst/x" };
        symlink(&outside, scene.path(place)).unwrap();
        let before = look(&outside);
        let line = format!("spread @/a/ @/b/ {host}@/dst --on local:1 --job @/job");
        let ended = ran(&scene, &line);
        assert_eq!(look(&outside), before, "{ended}");
        assert_eq!(ended.code, 3, "{ended}");
        for name in ["dst/x'", "dst/x/keys'", "dst/x/sub'", "dst/x/sub/keys'"] {
            let told = format!("{name} is not made: on its way");
            assert!(ended.stdout_text().contains(&told), "{name}\n{ended}");
        }
        assert!(ended.stderr.contains("4 files not copied"), "{ended}");
        assert_eq!(names_below(&scene.path("dst")), ["one", "two", "x"], "{ended}");
        // Nothing of them is in the receipt.
        let receipt = fs::read_to_string(scene.path("job/receipt")).unwrap();
        assert_eq!(receipt.lines().count(), 2, "{receipt}");
    });
}

/// The far source's side tells of a link, and of a folder by its name with a mode that opens it to
/// everybody; and of names that are the job's own.
#[test]
fn a_far_source_that_lies_touches_nothing_outside() {
    let scene = Scene::new();
    let outside = outside(&scene);
    fs::create_dir_all(scene.path("src")).unwrap();
    symlink(&outside, scene.path("src/x")).unwrap();
    let src = scene.path("src").display().to_string();
    let seen = |kind: &str, name: &str| {
        format!(
            r#"{{"kind":"{kind}","size":0,"mtime_s":1,"mtime_ns":0,"mode":511,"name":"{name}"}}"#
        )
    };
    let all = [("link", "x"), ("folder", "x"), ("folder", ".datapump-spread"), ("folder", "")];
    let all = all.map(|(kind, name)| seen(kind, name)).join(",");
    let own = seen("link", ".datapump-spread/x");
    let program = concat!("datapump ", env!("CARGO_PKG_VERSION"));
    scene.far_script(&format!(
        r#"[ "$1" = spread-far ] || exec "$PROGRAM" "$@"
printf '\ndatapump-spread\n{{"greeting":{{"program":"{program}"}}}}\n'
read -r asked
case $asked in
*walk*) echo '{{"source":"walks"}}'
    echo '{{"source":{{"seen":{{"entries":[{all},{own}]}}}}}}'
    echo '{{"source":"walked"}}'
    exec cat >/dev/null;;
esac
echo '{{"source":{{"roots":[{{"folder":"{src}","prefix":"","only":null}}]}}}}'
# What else is asked, and a copy over this login, is the program's, but for its greeting.
"$PROGRAM" spread-far | {{ read -r empty; read -r mark; read -r greeting; exec cat; }}"#
    ));
    let before = look(&outside);
    let ended = ran(&scene, "spread far:@/src/ @/dst --on local:1 --job @/job");
    assert_eq!(look(&outside), before, "{ended}");
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout_text().contains("dst/x' is not made: on its way"), "{ended}");
    assert!(ended.stdout_text().contains("has a name that datapump keeps"), "{ended}");
    assert!(scene.path("dst/x").is_symlink() && !scene.path("dst/.datapump-spread").exists());
}

/// Somebody with rights in the destination replaces a folder of it, or what the job has there, by
/// what leads to a folder outside, while the job runs: whatever becomes of it.
#[test]
fn folders_that_become_links() {
    each(["", "far:"], |host| {
        for replaced in ["d", ".datapump-spread"] {
            let scene = Scene::new();
            let outside = outside(&scene);
            for folder in ["src/d/sub", "dst/d"] {
                fs::create_dir_all(scene.path(folder)).unwrap();
            }
            for i in 0..400 {
                write_file(&scene.path(format!("src/d/sub/f{i}")), i, 100 + i as usize);
            }
            write_file(&scene.path("src/d/large"), 7, 3_000_001);
            let planted = scene.path("dst/planted");
            if replaced == "d" {
                symlink(&outside, &planted).unwrap();
            } else {
                fs::create_dir(&planted).unwrap();
            }
            let before = look(&outside);
            let line = format!("spread @/src/ {host}@/dst --on local:2 --split-above 1M");
            let running = start(&scene, &format!("{line} --job @/job --rate 8MB"));
            if replaced != "d" {
                // As the job's own folder is called, there is what leads out.
                let manifest = until_some("the job has its destination", || {
                    let text = fs::read(scene.path("job/manifest.json")).ok()?;
                    serde_json::from_slice::<Value>(&text).ok()
                });
                symlink(&outside, planted.join(manifest["id"].as_str().unwrap())).unwrap();
            }
            let swapper = Swapper::start(scene.path("dst").join(replaced), planted);
            let ended: Ran = running.end();
            let swaps = swapper.swaps();
            swapper.stop();
            assert!(swaps > 0, "{ended}");
            assert_eq!(look(&outside), before, "{replaced}: {ended}");
            assert!(!ended.stderr.contains("panicked"), "{ended}");
        }
    });
}

/// `copy` itself, into what a job has at its destination: through links no more than a job.
#[test]
fn a_copy_into_a_holder_stays_beneath_its_destination() {
    each(["", "far:"], |host| {
        let scene = Scene::new();
        let outside = outside(&scene);
        write_file(&scene.path("f"), 1, 1000);
        fs::create_dir_all(scene.path("dst/real/1f")).unwrap();
        symlink(&outside, scene.path("dst/.datapump-spread")).unwrap();
        let before = look(&outside);
        for name in ["f", "sub/f", "sub/"] {
            let ended = scene.run(&format!("copy @/f {host}@/dst/.datapump-spread/{name}"));
            assert!(ended.code == 2 && ended.stderr.contains("leads out of"), "{ended}");
        }
        assert_eq!(look(&outside), before);
        fs::remove_file(scene.path("dst/.datapump-spread")).unwrap();
        fs::rename(scene.path("dst/real"), scene.path("dst/.datapump-spread")).unwrap();
        scene.succeed(&format!("copy @/f {host}@/dst/.datapump-spread/1f/f"));
        assert_same(&scene.path("f"), &scene.path("dst/.datapump-spread/1f/f"));
    });
}

/// A job that is over takes nothing from the one that runs, and one that ended before it began can
/// be given up.
#[test]
fn a_job_gives_up_what_is_its_own() {
    let scene = Scene::new();
    ["src", "small"].iter().for_each(|folder| fs::create_dir(scene.path(folder)).unwrap());
    for i in 0..40 {
        write_file(&scene.path(format!("src/f{i}")), i, 100_000);
    }
    write_file(&scene.path("small/g"), 1, 1000);
    scene.succeed("spread @/small/ @/dst --on local:1 --job @/first");
    let running = start(&scene, "spread @/src/ @/dst --on local:1 --job @/second --rate 1MB");
    until("the second job has the destination", || scene.path("second/manifest.json").exists());
    for command in ["cancel", "cancel --forget"] {
        let said = scene.succeed(&format!("spread {command} @/first"));
        assert!(said.stdout_text().contains("done already, nothing to do"), "{said}");
    }
    let third = scene.run("spread @/small/ @/dst --on local:1 --job @/third");
    let taken = format!("its job folder is '{}'", scene.path("second").display());
    assert!(third.code == 2 && third.stderr.contains(&taken), "{third}");
    assert!(!scene.path("third").exists(), "the same command can be tried again");
    let ended = running.end();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(!scene.path("dst/.datapump-spread").exists(), "something is left");
    let status = scene.succeed("spread status @/first").stdout_text();
    assert!(status.contains("done"), "{status}");
}

#[test]
fn a_job_that_ended_before_it_began_is_given_up() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/f"), 1, 2_000_000);
    let mut running = start(&scene, "spread @/src/ @/dst --on local:1 --job @/job --rate 100kB");
    until("it has the destination", || scene.path("job/manifest.json").exists());
    running.kill();
    let group = processes::that_name(&scene.path("job"));
    group.into_iter().for_each(|pid| processes::send(pid, Signal::KILL));
    // As it is until the job has its destination.
    fs::rename(scene.path("job/manifest.json"), scene.path("job/unbegun.json")).unwrap();
    for command in ["resume", "status", "cancel"] {
        let said = scene.run(&format!("spread {command} @/job"));
        assert!(said.code == 2 && said.stderr.contains("spread cancel --forget"), "{said}");
    }
    let said = scene.succeed("spread cancel --forget @/job");
    assert!(said.stdout_text().contains("given up"), "{said}");
    assert!(!scene.path("dst/.datapump-spread").exists(), "the destination is free");
    scene.succeed("spread @/src/ @/dst --on local:1 --job @/again");
    assert_same(&scene.path("src"), &scene.path("dst"));
}

/// Names that datapump keeps for itself are refused by name, and every name of a file with several
/// is copied.
#[test]
fn every_name_is_copied_or_told() {
    each(["@/src/ @/dst", "@/src/ far:@/dst", "far:@/src/ @/dst"], |ends| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("src/.datapump-spread/sub")).unwrap();
        fs::create_dir(scene.path("src/d")).unwrap();
        let own = [".datapump-spread/sub/data", "d/.datapump-0123abcd-1.part"];
        for (number, name) in own.iter().chain(&["a", "d/c"]).enumerate() {
            write_file(&scene.path("src").join(name), number as u64, 1000);
        }
        for name in ["b", "d/b", "large-b"] {
            fs::hard_link(scene.path("src/a"), scene.path("src").join(name)).unwrap();
        }
        write_file(&scene.path("src/large"), 5, 3_000_001);
        fs::hard_link(scene.path("src/large"), scene.path("src/d/large")).unwrap();
        let line = format!("spread {ends} --on local:2 --split-above 1M --job @/job");
        let ended = ran(&scene, &line);
        assert_eq!(ended.code, 3, "{ended}");
        for name in own {
            let told = format!("'{name}' has a name that datapump keeps");
            assert!(ended.stdout_text().contains(&told), "{name}\n{ended}");
        }
        let names = ["a", "b", "d/b", "d/c", "d/large", "large", "large-b"];
        assert_eq!(names_below(&scene.path("dst")), names, "{ended}");
        for name in names {
            assert_same(&scene.path("src").join(name), &scene.path("dst").join(name));
        }
        let receipt = fs::read_to_string(scene.path("job/receipt")).unwrap();
        assert_eq!(receipt.lines().count(), names.len(), "{receipt}");
        scene.succeed("verify @/job/receipt @/dst");
    });
}
