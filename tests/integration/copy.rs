//! `datapump copy` from every kind of source to every kind of sink, on one host and through a real
//! sshd, compared byte by byte.

use crate::support;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;

use crate::support::data::{self, LENGTHS, assert_same, write_file, write_tree};
use crate::support::{PROGRAM, Scene, each, far, need, need_root, run};

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Local,
    Push,
    Pull,
}

const WAYS: &[Direction] = &[Direction::Local, Direction::Push, Direction::Pull];

impl Direction {
    /// The prefixes of the source and of the destination.
    fn hosts(self) -> (&'static str, &'static str) {
        match self {
            Direction::Local => ("", ""),
            Direction::Push => ("", "far:"),
            Direction::Pull => ("far:", ""),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    File,
    Tree,
    Pipe,
    Null,
    Zero,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    /// A name that does not exist yet.
    Name,
    /// A folder that exists.
    Folder,
    Pipe,
    Null,
}

/// The result of a pairing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    Same,
    Length,
    /// The command line is refused with these words.
    Refused(&'static str),
}

const SOURCES: &[Source] =
    &[Source::File, Source::Tree, Source::Pipe, Source::Null, Source::Zero, Source::Random];
const SINKS: &[Sink] = &[Sink::Name, Sink::Folder, Sink::Pipe, Sink::Null];

fn expected(direction: Direction, source: Source, sink: Sink) -> Expect {
    match (direction, source, sink) {
        // The far side's standard input and output carry the protocol.
        (Direction::Pull, Source::Pipe, _) | (Direction::Push, _, Sink::Pipe) => {
            Expect::Refused("carry the protocol")
        }
        (_, Source::Tree, Sink::Pipe) => Expect::Refused("folder"),
        (_, Source::Null, _) | (_, _, Sink::Null) => Expect::Length,
        _ => Expect::Same,
    }
}

#[test]
fn every_pairing_on_one_host() {
    every_pairing(Direction::Local);
}

#[test]
fn every_pairing_pushed() {
    every_pairing(Direction::Push);
}

#[test]
fn every_pairing_pulled() {
    every_pairing(Direction::Pull);
}

fn every_pairing(direction: Direction) {
    let pairings = SOURCES.iter().flat_map(|source| SINKS.iter().map(move |sink| (*source, *sink)));
    each(pairings, |(source, sink)| check_pairing(direction, *source, *sink));
}

fn check_pairing(direction: Direction, source: Source, sink: Sink) {
    let scene = Scene::new();
    write_file(&scene.path("file"), 1, PAIRING_BYTES);
    write_tree(&scene.path("tree"));
    fs::create_dir(scene.path("folder")).unwrap();
    fs::write(scene.path("zeros"), vec![0; PAIRING_BYTES]).unwrap();
    let (from, to) = direction.hosts();
    let options = if source == Source::Tree { "-r" } else { "" };
    let line = format!("copy {options} {from}{} {to}{}", source_words(source), sink_words(sink));

    let input = data::bytes(1, PAIRING_BYTES);
    let ran = run::to_end(scene.command(&scene.words(&line)), &input);

    if let Expect::Refused(words) = expected(direction, source, sink) {
        assert_eq!(ran.code, 2, "{line}\n{ran}");
        assert!(ran.stderr.contains(words), "{line}\n{ran}");
        scene.assert_holds("folder", &[]);
        return;
    }
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    let arrived = match sink {
        Sink::Null => return,
        // As with rsync, the folder itself goes below the name.
        Sink::Name if source == Source::Tree => scene.path("new/tree"),
        Sink::Name => scene.path("new"),
        Sink::Folder => scene.path("folder").join(name_in_folder(source)),
        Sink::Pipe => {
            fs::write(scene.path("piped"), &ran.stdout).unwrap();
            scene.path("piped")
        }
    };
    if expected(direction, source, sink) == Expect::Length {
        assert_eq!(fs::metadata(&arrived).unwrap().len(), PAIRING_BYTES as u64, "{line}");
        return;
    }
    match source {
        Source::Tree => assert_same(&scene.path("tree"), &arrived),
        Source::Zero => assert_same(&scene.path("zeros"), &arrived),
        Source::Random => {
            scene.succeed(&format!("copy random:{PAIRING_BYTES} @/again"));
            assert_same(&scene.path("again"), &arrived);
        }
        Source::File | Source::Pipe | Source::Null => assert_same(&scene.path("file"), &arrived),
    }
}

/// A source without a name gets one after its kind.
fn name_in_folder(source: Source) -> &'static str {
    match source {
        Source::File => "file",
        Source::Tree => "tree",
        Source::Pipe => "stdin",
        Source::Null => "null",
        Source::Zero => "zero",
        Source::Random => "random",
    }
}

fn source_words(source: Source) -> String {
    match source {
        Source::File => "@/file".into(),
        Source::Tree => "@/tree".into(),
        Source::Pipe => "-".into(),
        Source::Null => format!("null:{PAIRING_BYTES}"),
        Source::Zero => format!("zero:{PAIRING_BYTES}"),
        Source::Random => format!("random:{PAIRING_BYTES}"),
    }
}

fn sink_words(sink: Sink) -> &'static str {
    match sink {
        Sink::Name => "@/new",
        Sink::Folder => "@/folder",
        Sink::Pipe => "-",
        Sink::Null => "null:",
    }
}

#[test]
fn lengths_around_a_request() {
    each(
        WAYS.iter().flat_map(|direction| LENGTHS.iter().map(move |len| (*direction, *len))),
        |(direction, len)| {
            let scene = Scene::new();
            let (from, to) = direction.hosts();
            write_file(&scene.path("in"), *len as u64, *len);
            scene.succeed(&format!("copy --request-size 64K {from}@/in {to}@/out"));
            assert_same(&scene.path("in"), &scene.path("out"));
        },
    );
}

#[test]
fn pipes_of_every_length() {
    let directions = [Direction::Local, Direction::Push];
    each(
        directions.iter().flat_map(|direction| LENGTHS.iter().map(move |len| (*direction, *len))),
        |(direction, len)| {
            let scene = Scene::new();
            let (_, to) = direction.hosts();
            write_file(&scene.path("in"), 5, *len);
            let line = format!("copy --request-size 64K - {to}@/out");
            let ran = run::to_end(scene.command(&scene.words(&line)), &data::bytes(5, *len));
            assert_eq!(ran.code, 0, "{line}\n{ran}");
            assert_same(&scene.path("in"), &scene.path("out"));
        },
    );
}

#[test]
fn seals_and_digests() {
    let mut cases = Vec::new();
    for seal in ["tls", "auth", "off"] {
        for digest in ["blake3", "crc64", "none"] {
            cases.push((Direction::Push, format!("--seal {seal} --digest {digest}")));
        }
    }
    cases.push((Direction::Pull, "--seal auth --digest crc64".into()));
    cases.push((Direction::Pull, "--seal off --digest none".into()));
    each(cases, |(direction, options)| check_tree(*direction, options));
}

#[test]
fn engines_sizes_and_direct() {
    let mut cases = Vec::new();
    for engine in ["uring", "threads"] {
        for size in ["4K", "12K", "64K", "1M"] {
            for direct in ["on", "off"] {
                let options = format!("--engine {engine} --request-size {size} --direct {direct}");
                cases.extend([(Direction::Local, options.clone()), (Direction::Push, options)]);
            }
        }
        cases.push((Direction::Pull, format!("--engine {engine} --request-size 12K --direct on")));
    }
    each(cases, |(direction, options)| check_tree(*direction, options));
}

#[test]
fn the_other_options() {
    let options = [
        "--streams 1",
        "--streams 2 --request-size 16M",
        "--streams 64 --request-size 4K",
        "--depth-source 1 --depth-sink 1",
        "--depth-source 32 --depth-sink 1 --streams 1",
        "--depth-source 1 --depth-sink 32 --streams 1",
        "--window 64K",
        "--congestion cubic",
        "--rate 400Mbit",
        "--memory 64M --streams 1",
        "--preallocate on",
        "--fsync off",
        "--interval 0.1",
        "-q",
    ];
    let cases =
        options.iter().flat_map(|option| [(Direction::Push, *option), (Direction::Pull, *option)]);
    each(cases, |(direction, option)| check_tree(*direction, option));
}

/// Copies a tree with these options and compares it.
fn check_tree(direction: Direction, options: &str) {
    let scene = Scene::new();
    write_tree(&scene.path("src"));
    let (from, to) = direction.hosts();
    scene.succeed(&format!("copy -r {options} {from}@/src/ {to}@/dst"));
    assert_same(&scene.path("src"), &scene.path("dst"));
}

#[test]
fn odd_names() {
    each(WAYS, |direction| {
        let scene = Scene::new();
        data::write_odd_names(&scene.path("src"));
        let (from, to) = direction.hosts();
        scene.succeed(&format!("copy -r {from}@/src/ {to}@/dst"));
        assert_same(&scene.path("src"), &scene.path("dst"));
    });
}

/// The name of the far program is one word to the shell there, whatever it contains, and the shell
/// executes nothing in it.
#[test]
fn an_odd_name_of_the_far_program() {
    each(
        ["a b", "$(touch done)", "`touch done`", "a;touch done", "it's", "a\nb", "*", "-p"],
        |name| {
            let scene = Scene::new();
            fs::create_dir(scene.path("bin")).unwrap();
            let program = scene.path("bin").join(name);
            std::os::unix::fs::symlink(PROGRAM, &program).unwrap();
            data::write_file(&scene.path("in"), 1, 1000);
            let mut words = scene.words("copy @/in far:@/out --remote-datapump");
            words.push(program.clone().into());
            let mut command = scene.command(&words);
            command.current_dir(scene.path("bin"));
            let ran = run::to_end(command, b"");
            assert_eq!(ran.code, 0, "{name:?}\n{ran}");
            assert_same(&scene.path("in"), &scene.path("out"));
            assert_eq!(fs::read_dir(scene.path("bin")).unwrap().count(), 1, "{name:?}");
        },
    );
}

/// A file named on the command line, not only found in a tree.
#[test]
fn odd_names_typed() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    each(WAYS, |direction| {
        let scene = Scene::new();
        data::write_odd_names(&scene.path("src"));
        fs::create_dir(scene.path("dst")).unwrap();
        let (from, to) = direction.hosts();
        let at = |host: &str, path: &Path| -> OsString {
            let mut word = OsString::from(host);
            word.push(path);
            word
        };
        let mut args: Vec<OsString> = vec!["copy".into()];
        for name in data::odd_names() {
            args.push(at(from, &scene.path("src").join(OsStr::from_bytes(&name))));
        }
        args.push(at(to, &scene.path("dst")));
        let ran = run::to_end(scene.command(&args), b"");
        assert_eq!(ran.code, 0, "{direction:?}\n{ran}");
        assert_same(&scene.path("src"), &scene.path("dst"));
    });
}

/// The result of a command line for `src` (with a file in it) and a lone `file`.
#[derive(Debug)]
struct Rule {
    args: &'static str,
    code: i32,
    arrives: &'static [&'static str],
}

#[test]
fn where_things_arrive() {
    let rules = [
        Rule { args: "-r H@/src T@/dst", code: 0, arrives: &["src/inner"] },
        Rule { args: "-r H@/src/ T@/dst", code: 0, arrives: &["inner"] },
        Rule { args: "-r H@/src/ T@/dst/", code: 0, arrives: &["inner"] },
        Rule { args: "-r H@/src T@/dst/new", code: 0, arrives: &["new/src/inner"] },
        Rule { args: "-r H@/src/ T@/dst/new", code: 0, arrives: &["new/inner"] },
        Rule { args: "H@/file T@/dst", code: 0, arrives: &["file"] },
        Rule { args: "H@/file T@/dst/", code: 0, arrives: &["file"] },
        Rule { args: "H@/file T@/dst/name", code: 0, arrives: &["name"] },
        Rule { args: "-r H@/src H@/file T@/dst", code: 0, arrives: &["file", "src/inner"] },
        Rule { args: "H@/file H@/other T@/dst", code: 0, arrives: &["file", "other"] },
        Rule { args: "H@/src H@/file T@/dst", code: 3, arrives: &["file"] },
    ];
    let cases = WAYS.iter().flat_map(|direction| rules.iter().map(move |rule| (*direction, rule)));
    each(cases, |(direction, rule)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        for (seed, name) in ["src/inner", "file", "other"].iter().enumerate() {
            write_file(&scene.path(name), seed as u64, 3000);
        }
        let (from, to) = direction.hosts();
        let args = rule.args.replace("H@", &format!("{from}@")).replace("T@", &format!("{to}@"));
        let ran = scene.run(&format!("copy {args}"));
        assert_eq!(ran.code, rule.code, "{args}\n{ran}");
        match rule.code {
            0 => scene.assert_holds("dst", rule.arrives),
            _ => scene.assert_arrived("dst", rule.arrives),
        }
    });
}

#[test]
fn overwrite_rules() {
    // Option, whether the destination is older than the source, exit code, whether it is replaced.
    let rules = [
        ("", true, 3, false),
        ("--overwrite never", true, 3, false),
        ("--overwrite older", true, 0, true),
        ("--overwrite older", false, 0, false),
        ("--overwrite always", false, 0, true),
        ("-u", true, 0, true),
        ("-u", false, 0, false),
        ("-u --overwrite always", false, 0, true),
        ("-u --overwrite never", false, 3, false),
        ("-u --delete", false, 0, false),
    ];
    let cases = WAYS.iter().flat_map(|direction| rules.iter().map(move |rule| (*direction, *rule)));
    each(cases, |(direction, (option, destination_is_older, code, replaced))| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        write_file(&scene.path("src/both"), 1, 5000);
        write_file(&scene.path("src/new"), 2, 5000);
        write_file(&scene.path("dst/both"), 3, 4000);
        let hour = Duration::from_secs(3600);
        let age = if *destination_is_older { hour * 2 } else { Duration::ZERO };
        set_age(&scene.path("src/both"), hour);
        set_age(&scene.path("dst/both"), age);
        let (from, to) = direction.hosts();
        let line = format!("copy -r {option} {from}@/src/ {to}@/dst");
        let ran = scene.run(&line);
        assert_eq!(ran.code, *code, "{line}\n{ran}");
        if *code == 3 {
            assert!(ran.stderr.contains("both") && ran.stderr.contains("exist"), "{line}\n{ran}");
        }
        let seed = if *replaced { 1 } else { 3 };
        let len = if *replaced { 5000 } else { 4000 };
        assert!(
            fs::read(scene.path("dst/both")).unwrap() == data::bytes(seed, len),
            "{line}\n{ran}"
        );
        assert_same(&scene.path("src/new"), &scene.path("dst/new"));
        scene.assert_holds("dst", &["both", "new"]);
    });
}

/// As with rsync: what is newer at DST stays, and of what is as old what has another size does not.
#[test]
fn an_update_replaces_what_is_older_or_as_old_and_differs() {
    // The name, its size here and there, the age there (one hour here), and whether it is replaced.
    let files = [
        ("equal", 4000, 4000, 1, false),
        ("older", 4000, 4000, 2, true),
        ("newer", 4000, 5000, 0, false),
        ("cut", 4000, 3000, 1, true),
    ];
    let hour = Duration::from_secs(3600);
    each(WAYS, |direction| {
        let scene = Scene::new();
        for side in ["src", "dst"] {
            fs::create_dir(scene.path(side)).unwrap();
        }
        // The same moment for both: an age counts from when it is set.
        for (name, here, there, age, _) in files {
            write_file(&scene.path("src").join(name), 1, here);
            write_file(&scene.path("dst").join(name), 2, there);
            set_age(&scene.path("src").join(name), hour);
            set_age(&scene.path("dst").join(name), hour * age);
            if age == 1 {
                let time = fs::metadata(scene.path("src").join(name)).unwrap().modified().unwrap();
                let file = fs::File::options().write(true).open(scene.path("dst").join(name));
                file.unwrap().set_modified(time).unwrap();
            }
        }
        let (from, to) = direction.hosts();
        let ran = scene.succeed(&format!("copy -r -u {from}@/src/ {to}@/dst"));
        for (name, here, there, _, replaced) in files {
            let (seed, size) = if replaced { (1, here) } else { (2, there) };
            let is_right =
                fs::read(scene.path("dst").join(name)).unwrap() == data::bytes(seed, size);
            assert!(is_right, "{name}\n{ran}");
        }
        let told = "2 kept (unchanged or newer at the destination)";
        assert!(ran.stdout_text().contains(told), "{ran}");
        // A second one has nothing to do.
        let again = scene.succeed(&format!("copy -r -u {from}@/src/ {to}@/dst"));
        assert!(again.stdout_text().contains("4 kept"), "{again}");
    });
}

/// What is no file, folder or link is never replaced: replacing a device would remove it.
#[test]
fn devices_pipes_and_sockets_are_not_replaced() {
    need_root("a device is made");
    let overwrite = ["", "--overwrite older", "--overwrite always", "-n --overwrite always"];
    let cases =
        WAYS.iter().flat_map(|direction| overwrite.iter().map(move |rule| (*direction, *rule)));
    each(cases, |(direction, rule)| {
        let scene = Scene::new();
        for folder in ["src", "dst"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        for name in ["device", "link", "new", "pipe", "socket"] {
            write_file(&scene.path("src").join(name), 1, 5000);
        }
        fs::remove_file(scene.path("src/link")).unwrap();
        std::os::unix::fs::symlink("new", scene.path("src/link")).unwrap();
        let hour = Duration::from_secs(3600);
        let make = |name: &str, kind, number| {
            let path = scene.path("dst").join(name);
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), number).unwrap();
            let past = rustix::fs::Timespec { tv_sec: hour.as_secs().cast_signed(), tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: past, last_modification: past };
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
        };
        make("device", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        make("link", FileType::Fifo, 0);
        make("pipe", FileType::Fifo, 0);
        make("socket", FileType::Socket, 0);
        let kinds = || {
            let kind = |name| fs::symlink_metadata(scene.path("dst").join(name)).unwrap().mode();
            ["device", "link", "pipe", "socket"].map(kind)
        };
        let before = kinds();
        let (from, to) = direction.hosts();
        let line = format!("copy -r {rule} {from}@/src/ {to}@/dst");
        let ran = scene.run(&line);
        assert_eq!((ran.code, kinds()), (3, before), "{line}\n{ran}");
        for name in ["device", "link", "pipe", "socket"] {
            let said = format!("dst/{name}' is a device, pipe or socket");
            assert!(ran.stderr.contains(&said), "{line}\n{ran}");
        }
        assert_eq!(scene.path("dst/new").exists(), !rule.contains("-n"), "{line}\n{ran}");
        // As the only source it is refused before anything is created.
        let line = format!("copy {rule} {from}@/src/new {to}@/dst/device");
        let ran = scene.run(&line);
        assert_eq!((ran.code, kinds()), (2, before), "{line}\n{ran}");
        assert!(ran.stderr.contains("is a device, pipe or socket"), "{line}\n{ran}");
    });
}

fn set_age(path: &Path, age: Duration) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn mode_and_time_are_kept_unless_that_is_not_wanted() {
    each(WAYS, |direction| {
        let scene = Scene::new();
        write_tree(&scene.path("src"));
        let when = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        for (name, mode) in
            [("src/file-0", 0o640), ("src/one/two/small-1", 0o755), ("src/one", 0o750)]
        {
            fs::set_permissions(scene.path(name), fs::Permissions::from_mode(mode)).unwrap();
            fs::File::open(scene.path(name)).unwrap().set_modified(when).unwrap();
        }
        let (from, to) = direction.hosts();
        scene.succeed(&format!("copy -r {from}@/src/ {to}@/kept"));
        scene.succeed(&format!("copy -r --no-preserve {from}@/src/ {to}@/new"));
        let stated = |name: &str| {
            let meta = fs::symlink_metadata(scene.path(name)).unwrap();
            (meta.mode(), meta.mtime(), meta.mtime_nsec())
        };
        for path in data::files_below(&scene.path("src")) {
            let inner = path.strip_prefix(scene.path("src")).unwrap().display().to_string();
            if !path.is_symlink() {
                assert_eq!(
                    stated(&format!("src/{inner}")),
                    stated(&format!("kept/{inner}")),
                    "{inner}"
                );
            }
        }
        assert_eq!(stated("src/one"), stated("kept/one"), "a folder, {direction:?}");
        assert_ne!(
            stated("src/file-0").1,
            stated("new/file-0").1,
            "kept although it should be replaced, {direction:?}"
        );
    });
}

#[test]
fn several_streams_carry_the_bytes_and_one_login_is_made() {
    let scene = Scene::new();
    let log = scene.path("logins");
    let ssh = scene.script(
        "ssh",
        &format!(
            "case \" $* \" in *\" -G \"*) ;; *) echo login >> {} ;; esac\nexec {} \"$@\"",
            log.display(),
            far::ssh_command()
        ),
    );
    write_file(&scene.path("in"), 1, 20 << 20);
    scene.succeed(&format!("copy --streams 8 --ssh {} @/in far:@/out", ssh.display()));
    assert_same(&scene.path("in"), &scene.path("out"));
    assert_eq!(fs::read_to_string(log).unwrap(), "login\n");
}

/// A folder with more files than the far side may open at once.
#[test]
fn few_open_files() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    for i in 0..600 {
        write_file(&scene.path(format!("src/{i}")), i, 100);
    }
    scene.far_script("ulimit -n 256; exec $PROGRAM \"$@\"");
    scene.succeed("copy -r @/src/ far:@/pushed");
    assert_same(&scene.path("src"), &scene.path("pushed"));
    scene.succeed("copy -r far:@/src/ @/pulled");
    assert_same(&scene.path("src"), &scene.path("pulled"));
}

#[test]
fn a_receipt_has_the_name_at_the_target() {
    each(WAYS, |direction| {
        let scene = Scene::new();
        write_file(&scene.path("src"), 1, 3000);
        let (from, to) = direction.hosts();
        scene.succeed(&format!("copy {from}@/src {to}@/new --manifest @/sums"));
        scene.succeed("verify @/sums @/.");
    });
}

#[test]
fn manifest_is_verified_and_a_flipped_byte_is_found() {
    each(WAYS, |direction| {
        let scene = Scene::new();
        write_tree(&scene.path("src"));
        data::write_odd_names(&scene.path("src/odd"));
        let (from, to) = direction.hosts();
        scene.succeed(&format!("copy -r --manifest @/manifest {from}@/src/ {to}@/dst"));
        scene.succeed("verify @/manifest @/dst");

        let victim = scene.path("dst/one/two/small-7");
        let good = fs::read(&victim).unwrap();
        let mut spoilt = good.clone();
        spoilt[100] ^= 1;
        fs::write(&victim, &spoilt).unwrap();
        let ran = scene.run("verify @/manifest @/dst");
        assert_eq!(ran.code, 6, "{ran}");
        assert!(ran.stderr.contains("small-7"), "{ran}");

        fs::remove_file(&victim).unwrap();
        let ran = scene.run("verify @/manifest @/dst");
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains("small-7"), "{ran}");
    });
}

/// A file that was kept was not written: the receipt promises nothing of it.
#[test]
fn a_receipt_names_what_was_written() {
    for kept in ["--skip-unchanged", "--checksum"] {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        fs::write(scene.path("src/old"), "old").unwrap();
        scene.succeed("copy -r @/src/ @/dst");
        fs::write(scene.path("src/new"), "new").unwrap();
        scene.succeed(&format!("copy -r {kept} --manifest @/sums @/src/ @/dst"));
        let sums = fs::read_to_string(scene.path("sums")).unwrap();
        let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
        assert_eq!(names, ["new"], "{kept}");
    }
}

#[test]
fn events_parse_and_end_is_always_there() {
    // What is copied, the exit code, and the events that must be there.
    let cases: [(&str, i32, &[&str]); 5] = [
        ("@/in @/out1", 0, &["start", "file", "end"]),
        ("@/in far:@/out2", 0, &["start", "file", "end"]),
        ("far:@/in @/out3", 0, &["start", "file", "end"]),
        ("@/absent far:@/out4", 1, &["start", "end"]),
        ("@/in nobody@127.0.0.1:@/out5 --ssh false", 7, &["end"]),
    ];
    let scene = Scene::new();
    write_file(&scene.path("in"), 1, 1 << 20);
    each(cases, |(args, code, expect)| {
        let ran = scene.run(&format!("copy --json {args}"));
        assert_eq!(ran.code, *code, "{args}\n{ran}");
        let events = ran.events();
        let kinds: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap_or("?")).collect();
        for kind in *expect {
            assert!(kinds.contains(kind), "{args}: no {kind} event\n{ran}");
        }
        assert_eq!(kinds.last(), Some(&"end"), "{args}\n{ran}");
        assert_eq!(kinds.iter().filter(|kind| **kind == "end").count(), 1, "{args}\n{ran}");
    });
}

/// The caller of a copy may hold much more memory: that does not count as the copy's.
#[test]
fn the_peak_of_memory_is_that_of_the_copy() {
    let scene = Scene::new();
    let held = std::hint::black_box(vec![1u8; 256 << 20]);
    let ran = scene.run("copy --json random:32M far:null:");
    assert_eq!(ran.code, 0, "{ran}");
    let events = ran.events();
    let record = &events.last().unwrap()["record"];
    for side in [&record["source"], &record["sink"]] {
        let peak = side["peak_memory_bytes"].as_u64().unwrap();
        assert!(peak > 1 << 20, "{ran}");
        assert!(peak < side["planned_memory_bytes"].as_u64().unwrap(), "{ran}");
    }
    drop(held);
}

/// A sniffer on loopback sees the payload without a seal, and does not see it with TLS.
#[test]
fn sealed_means_that_the_wire_shows_nothing() {
    need_root("tcpdump listens on loopback");
    let seen = |seal: &str| {
        let scene = Scene::new();
        let secret = data::bytes(77, 64);
        fs::write(scene.path("in"), secret.repeat(2000)).unwrap();
        let port = far::closed_port();
        let capture = scene.path("capture");
        let mut tcpdump = Command::new(need("tcpdump", "tcpdump"));
        tcpdump.args(["-i", "lo", "-U", "--immediate-mode", "-B", "32768", "-w"]).arg(&capture);
        tcpdump.args(["tcp", "port", &port.to_string()]);
        let sniffer = Sniffer::start(tcpdump);
        let clear = "--compress off"; // or compression would hide it too
        scene.succeed(&format!("copy --seal {seal} {clear} --ports {port}-{port} @/in far:@/out"));
        assert_same(&scene.path("in"), &scene.path("out"));
        drop(sniffer);
        let wire = fs::read(capture).unwrap();
        assert!(wire.len() > 100_000, "the sniffer has seen only {} bytes", wire.len());
        wire.windows(secret.len()).any(|part| part == secret)
    };
    assert!(!seen("tls"), "TLS lets the payload through");
    assert!(seen("auth") && seen("off"), "the sniffer does not see clear text: this test is blind");
}

struct Sniffer {
    child: std::process::Child,
}

impl Sniffer {
    /// Returns when tcpdump says that it listens.
    fn start(mut command: Command) -> Sniffer {
        use std::io::{BufRead, BufReader};
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("listening on")), "tcpdump does not listen");
        std::thread::spawn(move || lines.count());
        Sniffer { child }
    }
}

impl Drop for Sniffer {
    /// Lets tcpdump write what it has, and waits for that.
    fn drop(&mut self) {
        support::processes::send(self.child.id().cast_signed(), rustix::process::Signal::INT);
        self.child.wait().unwrap();
    }
}

/// More than one request, and no whole number of them.
const PAIRING_BYTES: usize = (1 << 20) + 4096 + 1;

/// Runs a command line under a umask, on this host and on the far one.
fn under_umask(scene: &Scene, umask: &str, line: &str, input: &[u8]) {
    let _ = fs::remove_file(scene.far_program());
    scene.script("far-datapump", &format!("umask {umask}\nexec $PROGRAM \"$@\""));
    let plain = scene.command(&scene.words(line));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    command.arg(plain.get_program()).args(plain.get_args());
    let ran = support::run::to_end(command, input);
    assert_eq!(ran.code, 0, "umask {umask}: {line}\n{ran}");
}

const UMASKS: [&str; 3] = ["022", "077", "002"];

/// Data without a mode and a time makes a new file: mode 0666 less the umask, and the time is now.
#[test]
fn what_is_generated_is_a_new_file() {
    let sources = ["-", "zero:10", "random:10", "zero:3M"];
    let targets = ["@/out", "far:@/out"];
    let cases = UMASKS.iter().flat_map(|umask| {
        sources.iter().flat_map(move |source| targets.map(|target| (umask, source, target)))
    });
    each(cases, |(umask, source, target)| {
        let scene = Scene::new();
        let before = SystemTime::now() - Duration::from_secs(2); // as coarse as a file system
        under_umask(&scene, umask, &format!("copy {source} {target}"), b"from a pipe");
        let made = fs::metadata(scene.path("out")).unwrap();
        let mask = u32::from_str_radix(umask, 8).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o666 & !mask);
        let modified = made.modified().unwrap();
        assert!(modified >= before && modified <= SystemTime::now(), "{modified:?}");
        // So the file that is there is older.
        fs::write(scene.path("out"), "before").unwrap();
        let again = format!("copy --overwrite older {source} {target}");
        under_umask(&scene, umask, &again, b"from a pipe");
        assert_ne!(fs::read(scene.path("out")).unwrap(), b"before", "{again}");
    });
}

/// With --no-preserve the modes are those of the source less the umask, as with `cp -r`.
#[test]
fn modes_that_are_not_preserved_are_less_the_umask() {
    let cases = UMASKS.iter().flat_map(|umask| ["@/ours", "far:@/ours"].map(|to| (umask, to)));
    each(cases, |(umask, target)| {
        let scene = Scene::new();
        let source = scene.path("src");
        for (name, mode) in [("open", 0o777), ("group", 0o775), ("private", 0o700)] {
            let folder = source.join(name);
            fs::create_dir_all(&folder).unwrap();
            for mode in [0o644, 0o600, 0o666, 0o777, 0o711] {
                let file = folder.join(format!("{mode:o}"));
                fs::write(&file, b"x").unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        let line = format!("copy -r --no-preserve @/src {target}/");
        fs::create_dir(scene.path("ours")).unwrap();
        under_umask(&scene, umask, &line, b"");
        fs::create_dir(scene.path("cp")).unwrap();
        let words = format!("umask {umask}; exec cp -r \"$0\" \"$1\"");
        let mut cp = Command::new("sh");
        cp.args(["-c", &words]).arg(&source).arg(scene.path("cp"));
        assert!(cp.status().unwrap().success());
        let modes = |root: &str| {
            let list = "cd \"$0\"; find . -printf '%p %m\\n' | sort";
            let mut listing = Command::new("sh");
            listing.args(["-c", list]).arg(scene.path(root));
            String::from_utf8(listing.output().unwrap().stdout).unwrap()
        };
        assert_eq!(modes("ours/src"), modes("cp/src"), "umask {umask}");
    });
}

/// Files that the kernel generates report a size of zero or one page: they are copied up to the end
/// that a reader finds, as with cp.
#[test]
fn files_that_do_not_tell_their_size() {
    each(WAYS, |direction| {
        let scene = Scene::new();
        fs::create_dir(scene.path("dst")).unwrap();
        let (from, to) = direction.hosts();
        let files =
            ["/proc/version", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"];
        let files: Vec<&str> = files.into_iter().filter(|file| Path::new(file).exists()).collect();
        for file in &files {
            scene.succeed(&format!("copy {from}{file} {to}@/dst/one"));
            assert_eq!(fs::read(scene.path("dst/one")).unwrap(), fs::read(file).unwrap(), "{file}");
            fs::remove_file(scene.path("dst/one")).unwrap();
        }
        // Longer than a request, and so read in parts.
        let long = "/proc/kallsyms";
        let expect = fs::read(long).unwrap();
        scene.succeed(&format!("copy {from}{long} {to}@/dst/long"));
        assert!(fs::read(scene.path("dst/long")).unwrap() == expect, "{long} is another");
        scene.succeed(&format!("copy -r {from}/proc/sys/fs/mqueue {to}@/dst"));
        for file in data::files_below(Path::new("/proc/sys/fs/mqueue")) {
            let copy = scene.path("dst/mqueue").join(file.file_name().unwrap());
            assert_eq!(fs::read(copy).unwrap(), fs::read(&file).unwrap(), "{}", file.display());
        }
    });
}
