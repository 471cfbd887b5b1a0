//! Errors as users see them: each case ends with a documented exit code and a message that names
//! what failed and where, and leaves nothing lost, half-named or running.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::data::{self, assert_same, write_file};
use crate::support::mount::Mount;
use crate::support::processes::{self, assert_end, children_named, send};
use crate::support::run::{self, Ran, Running};
use crate::support::{PROGRAM, Scene, each, far, need, need_root};
use mover::wire::message::{VERSION_MAX, VERSION_MIN};
use rustix::process::Signal;

/// A command line, its exit code, and words that standard error must contain.
type Case = (&'static str, i32, &'static [&'static str]);

/// The folder in which the cases of the tables are run.
fn set_up() -> Scene {
    let scene = Scene::new();
    for folder in ["dir", "dst", "clash/file"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    for (seed, name) in ["file", "other", "exists", "dir/inner"].iter().enumerate() {
        write_file(&scene.path(name), seed as u64, 100_000);
    }
    let ssh = far::ssh_command();
    let closed = far::closed_port();
    scene.script("ssh", &format!("exec {ssh} \"$@\""));
    scene.script("ssh-closed", &format!("exec {ssh} -p {closed} \"$@\""));
    scene.script("ssh-nologin", &format!("exec {ssh} -o User=nobody \"$@\""));
    let stranger = "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no \
                    -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -i /nonexistent";
    scene.script("ssh-stranger", &format!("exec {stranger} -p {} \"$@\"", far::port()));
    scene
}

fn check(cases: &[Case]) {
    each(cases, |(line, code, words)| {
        let scene = set_up();
        check_ran(line, &scene.run(line), *code, words);
        assert_same_as_before(&scene, line);
        assert_end(&scene.far_processes());
    });
}

fn check_ran(line: &str, ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{line}\n{ran}");
    for word in words {
        let found = ran.stderr.to_lowercase().contains(&word.to_lowercase());
        assert!(found, "{line}: nothing about '{word}'\n{ran}");
    }
    assert!(!ran.stderr.contains("panicked"), "{line}\n{ran}");
}

/// No bad case may change or remove the files that were there.
fn assert_same_as_before(scene: &Scene, line: &str) {
    for (seed, name) in ["file", "other", "exists", "dir/inner"].iter().enumerate() {
        let now = fs::read(scene.path(name)).unwrap_or_default();
        assert!(now == data::bytes(seed as u64, 100_000), "{line}: {name} has changed");
    }
    scene.assert_holds("clash", &[]);
    scene.assert_holds("dir", &["inner"]);
}

#[test]
fn command_lines() {
    check(&[
        ("", 2, &["datapump copy SRC DST"]),
        ("kopy @/file @/out", 2, &["kopy"]),
        ("copy", 2, &["SRC", "DST"]),
        ("copy @/file", 2, &["DST"]),
        ("copy --bogus @/file @/out", 2, &["--bogus"]),
        ("copy null:4X null:", 2, &["4X"]),
        ("copy null: null:", 2, &["null:4G"]),
        ("copy random:-1 null:", 2, &["-1"]),
        ("copy null:99999999999999G null:", 2, &["99999999999999G"]),
        ("copy null:1M zero:", 2, &["zero:"]),
        ("copy far:@/file far:@/out", 2, &["host to host"]),
        ("copy far:- @/out", 2, &["far:-"]),
        ("copy @/file http://host/x", 2, &["http://host/x", "URL"]),
        ("copy @/file -oProxyCommand=x:@/out", 2, &["-o"]),
        ("copy @/file @/other -", 2, &["-"]),
        ("copy - @/file @/dst", 2, &["alone"]),
    ]);
}

#[test]
fn options_out_of_range_name_the_range() {
    check(&[
        ("copy --streams 0 @/file @/out", 2, &["--streams", "1 to 64"]),
        ("copy --streams 65 @/file @/out", 2, &["--streams", "1 to 64"]),
        ("copy --streams four @/file @/out", 2, &["four", "1 to 64"]),
        ("copy --request-size 5000 @/file @/out", 2, &["--request-size", "4K to 1G"]),
        ("copy --request-size 2G @/file @/out", 2, &["--request-size", "4K to 1G"]),
        ("copy --depth-source 0 @/file @/out", 2, &["--depth-source", "1 to 256"]),
        ("copy --depth-sink 257 @/file @/out", 2, &["--depth-sink", "1 to 256"]),
        ("copy --window 2G @/file @/out", 2, &["--window", "4K to 1G"]),
        ("copy --rate 100 @/file @/out", 2, &["'100' has no unit", "100Mbit", "100MB"]),
        ("copy -P 0 @/file @/out", 2, &["--port", "1 to 65535"]),
        ("copy --engine epoll @/file @/out", 2, &["auto, uring or threads"]),
        ("copy --direct maybe @/file @/out", 2, &["auto, on or off"]),
        ("copy --seal none @/file @/out", 2, &["tls, auth or off"]),
        ("copy --digest md5 @/file @/out", 2, &["blake3, crc64 or none"]),
        ("copy --fsync all @/file @/out", 2, &["file or off"]),
        ("copy --overwrite yes @/file @/out", 2, &["never, older or always"]),
        ("copy --memory 1M @/file @/out", 2, &["--memory", "64M"]),
        ("copy --ports 9-8 @/file @/out", 2, &["--ports", "LO-HI"]),
        ("copy --interval 0 @/file @/out", 2, &["0.1 to 3600"]),
        ("copy --manifest @/m --digest none @/file @/out", 2, &["--manifest", "--digest"]),
    ]);
}

#[test]
fn sources_and_destinations() {
    check(&[
        ("copy @/absent @/out", 1, &["absent", "no such file"]),
        ("copy @/absent far:@/out", 1, &["absent", "no such file"]),
        ("copy far:@/absent @/out", 1, &["absent", "no such file"]),
        ("copy @/dir @/out", 2, &["dir", "-r"]),
        ("copy @/dir far:@/out", 2, &["dir", "-r"]),
        ("copy far:@/dir @/out", 2, &["dir", "-r"]),
        ("copy -r @/dir @/exists", 2, &["exists", "directory"]),
        ("copy -r @/dir far:@/exists", 2, &["exists", "directory"]),
        ("copy @/file @/other @/exists", 2, &["exists", "directory"]),
        ("copy @/file @/other far:@/exists", 2, &["exists", "directory"]),
        ("copy far:@/file far:@/other @/exists", 2, &["exists", "directory"]),
        ("copy @/file @/exists/below", 1, &["exists", "not a directory"]),
        ("copy @/file @/no/such/out", 1, &["no/such", "no such file"]),
        ("copy @/file far:@/no/such/out", 1, &["no/such", "no such file"]),
        ("copy @/file @/exists", 3, &["exists", "--overwrite"]),
        ("copy @/file far:@/exists", 3, &["exists", "--overwrite"]),
        ("copy far:@/file @/exists", 3, &["exists", "--overwrite"]),
        ("copy @/file @/clash", 3, &["clash/file", "directory"]),
        ("copy --overwrite always @/file @/clash", 3, &["clash/file", "directory"]),
        ("copy --overwrite always @/file far:@/clash", 3, &["clash/file", "directory"]),
        ("copy -r @/dir @/dir/below", 2, &["itself"]),
        ("copy @/file @/file", 3, &["file", "exists"]),
        ("verify @/absent @/dst", 1, &["absent", "no such file"]),
        ("verify @/file @/dst", 2, &["file", "receipt"]),
    ]);
}

/// What does not fit the message to the far side is an error before the login.
#[test]
fn long_command_lines() {
    let path = "a/".repeat(35_000);
    let sources: String = (0..950).map(|i| format!("far:{}{i:03} ", "n".repeat(100))).collect();
    let patterns: String =
        (0..250).map(|i| format!("--exclude {}{i:03} ", "p".repeat(250))).collect();
    let cases = [
        (format!("copy @/file far:{path}"), 2, "a path of 70000 bytes is longer"),
        (format!("copy far:{path} @/dst"), 2, "a path of 70000 bytes is longer"),
        (format!("copy far:{path} far:b @/dst"), 2, "a path of 70000 bytes is longer"),
        (format!("copy {sources} {patterns} @/dst"), 2, "950 sources and 250 patterns are"),
        (format!("copy -r @/dir far:@/dst/ {patterns}"), 0, ""),
    ];
    each(cases, |(line, code, words)| {
        let scene = set_up();
        let ran = scene.run(line);
        let shown: String = line.chars().take(60).collect();
        assert_eq!(ran.code, *code, "{shown}\n{ran}");
        assert!(ran.stderr.contains(words) && !ran.stderr.contains("panicked"), "{shown}\n{ran}");
        assert_same_as_before(&scene, &shown);
    });
}

#[test]
fn far_sides_that_do_not_answer() {
    check(&[
        ("copy @/file nosuch.invalid:@/out --ssh @/ssh", 7, &["nosuch.invalid"]),
        ("copy nosuch.invalid:@/file @/out --ssh @/ssh", 7, &["nosuch.invalid"]),
        ("copy @/file far:@/out --ssh @/ssh-closed", 7, &["refused"]),
        ("copy @/file 127.0.0.1:@/out --ssh @/ssh-stranger", 7, &["permission denied"]),
        ("copy @/file far:@/out --ssh @/ssh-nologin", 8, &["not available"]),
        ("copy @/file far:@/out --ssh @/no-such-ssh", 7, &["no-such-ssh"]),
        ("copy @/file far:@/out --ssh false", 7, &["far"]),
        (
            "copy @/file far:@/out --remote-datapump /nonexistent/x",
            8,
            &["/nonexistent/x", "datapump"],
        ),
        (
            "copy far:@/file @/out --remote-datapump /nonexistent/x",
            8,
            &["/nonexistent/x", "datapump"],
        ),
        ("copy @/file far:@/out --congestion nosuch", 2, &["nosuch"]),
    ]);
}

#[test]
fn the_others_are_still_copied() {
    // A bad source among good ones; what the error must say about it.
    let cases = [
        ("copy @/file @/absent @/other T@/dst", "absent"),
        ("copy @/file @/dir @/other T@/dst", "dir"),
    ];
    let cases = cases.iter().flat_map(|case| ["", "far:"].map(|to| (case, to)));
    each(cases, |((line, name), to)| {
        let scene = set_up();
        let line = line.replace("T@", &format!("{to}@"));
        check_ran(&line, &scene.run(&line), 3, &[name]);
        assert_same(&scene.path("file"), &scene.path("dst/file"));
        assert_same(&scene.path("other"), &scene.path("dst/other"));
        scene.assert_arrived("dst", &["file", "other"]);
    });
}

/// Root reads and writes everything, so one of the two sides runs as the user `nobody`.
/// What failed is told of the host that has it: the far one by its name, this one without.
#[test]
fn a_fault_names_the_host_that_has_the_file() {
    need_root("root without its privileges over files is refused what it has closed to itself");
    let setpriv = need("setpriv", "util-linux").display().to_string();
    let plain =
        format!("exec {setpriv} --bounding-set=-dac_override,-dac_read_search $PROGRAM \"$@\"");
    let closed = fs::Permissions::from_mode(0o000);
    let cases = [
        ("", "far:", "src/shut", "cannot open"),
        ("far:", "", "src/shut", "cannot open"),
        ("", "far:", "dst/there", "exists"),
        ("far:", "", "dst/there", "exists"),
    ];
    each(cases, |(from, to, name, reason)| {
        let scene = Scene::new();
        for name in ["src/a", "src/shut", "src/there", "dst/there"] {
            fs::create_dir_all(scene.path(name).parent().unwrap()).unwrap();
            write_file(&scene.path(name), 1, 3000);
        }
        fs::set_permissions(scene.path("src/shut"), closed.clone()).unwrap();
        scene.far_script(&plain);
        let near = scene.script("near", &plain);
        let line = format!("copy -r {from}@/src/ {to}@/dst");
        let mut command = Command::new(&near);
        command.args(scene.command(&scene.words(&line)).get_args());
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 3, "{line}\n{ran}");
        let host = if name.starts_with("src") { from } else { to };
        let said = ran.stderr.lines().find(|said| said.contains(name)).expect(name);
        let path = scene.path(name).display().to_string();
        assert!(said.contains(reason) && said.contains(&path), "{line}: {said}\n{ran}");
        assert_eq!(said.contains("far: "), *host == "far:", "{line}: {said}\n{ran}");
    });
}

#[test]
fn what_may_not_be_read_or_written() {
    need_root("setpriv makes a process of another user");
    let setpriv = need("setpriv", "util-linux").display().to_string();
    let nobody = format!("{setpriv} --reuid 65534 --regid 65534 --clear-groups");
    let make = || {
        let scene = set_up();
        fs::set_permissions(scene.path("other"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(scene.path("dst"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(scene.path("closed")).unwrap();
        let program = scene.program_for_all().display().to_string();
        scene.far_script(&format!("exec {nobody} {program} \"$@\""));
        let near = scene.script("near", &format!("exec {nobody} {program} \"$@\""));
        (scene, near)
    };
    let run_near = |scene: &Scene, near: &Path, line: &str| {
        let mut command = Command::new(near);
        command.args(scene.words(line));
        run::to_end(command, b"")
    };

    let (scene, near) = make();
    let ran = run_near(&scene, &near, "copy @/file @/other @/exists @/dst");
    check_ran("unreadable, local", &ran, 3, &["other", "permission denied"]);
    scene.assert_arrived("dst", &["exists", "file"]);

    let (scene, _) = make();
    let ran = scene.run("copy far:@/file far:@/other far:@/exists @/dst");
    check_ran("unreadable, pulled", &ran, 3, &["other", "permission denied"]);
    scene.assert_arrived("dst", &["exists", "file"]);

    let (scene, near) = make();
    let ran = run_near(&scene, &near, "copy @/file @/closed/out");
    check_ran("unwritable, local", &ran, 3, &["closed", "permission denied"]);
    scene.assert_holds("closed", &[]);

    let (scene, _) = make();
    let ran = scene.run("copy @/file far:@/closed/out");
    check_ran("unwritable, pushed", &ran, 3, &["closed", "permission denied"]);
    scene.assert_holds("closed", &[]);
}

#[test]
fn no_space() {
    need_root("a small tmpfs is mounted");
    each(["", "far:"], |to| {
        // Known before the first byte is written: the size is announced.
        let scene = Scene::new();
        let room = Mount::small(&scene.path("room"));
        write_file(&scene.path("big"), 1, 8 << 20);
        let ran = scene.run(&format!("copy @/big {to}@/room/big"));
        check_ran("a file that cannot fit", &ran, 5, &["room", "MiB"]);
        scene.assert_holds("room", &[]);
        drop(room);

        // Known only for the whole: each file fits.
        let room = Mount::small(&scene.path("room"));
        fs::create_dir(scene.path("tree")).unwrap();
        (0..8).for_each(|i| write_file(&scene.path(format!("tree/{i}")), i, 1 << 20));
        let ran = scene.run(&format!("copy -r @/tree {to}@/room/tree"));
        check_ran("a tree that cannot fit", &ran, 5, &["MiB"]);
        only_whole_files(&scene.path("room/tree"));
        drop(room);

        // Not known in advance: a pipe.
        let room = Mount::small(&scene.path("room"));
        let line = format!("copy - {to}@/room/piped");
        let ran = run::to_end(scene.command(&scene.words(&line)), &data::bytes(2, 8 << 20));
        check_ran("a pipe that does not fit", &ran, 5, &["room", "space"]);
        scene.assert_holds("room", &[]);
        drop(room);
    });
}

/// Every file with a final name is complete. A journal may say that the folder is the copy's own.
fn only_whole_files(folder: &Path) {
    for path in data::files_below(folder) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".journal") {
            continue;
        }
        let seed = name.parse().unwrap_or_else(|_| panic!("{name} is left behind"));
        assert!(fs::read(&path).unwrap() == data::bytes(seed, 1 << 20), "{name} is half a file");
    }
}

/// The far side is in its own network namespace: only the ssh connection leads to it.
#[test]
fn data_ports_that_cannot_be_reached() {
    need_root("a network namespace is made");
    let unshare = need("unshare", "util-linux").display().to_string();
    need("ip", "iproute2");
    let lines =
        format!("exec {unshare} --net sh -c 'ip link set lo up; exec \"$@\"' sh $PROGRAM \"$@\"");
    let ends = [("", "far:"), ("far:", "")];
    let options = ["", "--seal off --streams 8", "--seal auth --digest crc64"];
    each(
        ends.iter().flat_map(|ends| options.map(|options| (ends, options))),
        |((from, to), options)| {
            let scene = Scene::new();
            scene.far_script(&lines);
            data::write_tree(&scene.path("src"));
            let ran = scene.succeed(&format!("copy -r {options} {from}@/src/ {to}@/dst"));
            assert_same(&scene.path("src"), &scene.path("dst"));
            let said = ran
                .stderr
                .lines()
                .filter(|line| line.contains("over the control connection"))
                .count();
            assert_eq!(said, 1, "{ran}");
        },
    );
}

/// Like a firewall that drops packets: nothing sent to the far address is answered.
#[test]
fn data_ports_that_swallow_connections() {
    need_root("network namespaces are made");
    need("ip", "iproute2");
    let unshare = need("unshare", "util-linux").display().to_string();
    let scene = set_up();
    // Stands for ssh: the command runs in its own network namespace.
    let ssh = format!(
        "while [ \"$1\" != 203.0.113.1 ]; do shift; done; shift\n\
         export SSH_CONNECTION='203.0.113.2 1 203.0.113.1 22'\n\
         exec {unshare} --net sh -c \"ip link set lo up; $*\""
    );
    scene.script("ssh-elsewhere", &ssh);
    let near = "ip link set lo up; ip link add a0 type veth peer name a1; ip link set a1 up; \
                ip addr add 203.0.113.2/24 dev a0; ip link set a0 up; \
                ip neigh add 203.0.113.1 lladdr 2:0:0:0:0:1 dev a0 nud permanent; exec \"$@\"";
    // It lasts longer than a connection may take to be opened.
    let slow = "--rate 128kbit --request-size 4K";
    let line =
        format!("copy {slow} --ssh @/ssh-elsewhere @/file 203.0.113.1:@/out --remote-datapump");
    let mut command = Command::new(&unshare);
    command.args(["--net", "sh", "-c", near, "sh", PROGRAM]).args(scene.words(&line));
    command.arg(scene.far_program());
    let ran = run::to_end(command, b"");
    assert_eq!(ran.code, 0, "{ran}");
    assert_same(&scene.path("file"), &scene.path("out"));
    let said =
        ran.stderr.lines().filter(|line| line.contains("over the control connection")).count();
    assert_eq!(said, 1, "{ran}");
}

/// A slow transfer that has reported progress.
fn under_way(scene: &Scene, line: &str) -> Running {
    let line = format!("{line} --json --interval 0.1 --rate 2M");
    let mut running = run::start(scene.command(&scene.words(&line)));
    running.wait_for_bytes();
    running
}

const SLOW_COPIES: &[&str] =
    &["copy @/src/big @/dst/big", "copy @/src/big far:@/dst/big", "copy far:@/src/big @/dst/big"];
const SLOW_BYTES: usize = 16 << 20;

fn slow_scene() -> Scene {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    fs::create_dir(scene.path("dst")).unwrap();
    write_file(&scene.path("src/big"), 1, SLOW_BYTES);
    scene
}

#[test]
fn signals_end_both_sides() {
    let cases = SLOW_COPIES.iter().flat_map(|line| [Signal::INT, Signal::TERM].map(|s| (line, s)));
    each(cases, |(line, signal)| {
        let scene = slow_scene();
        let running = under_way(&scene, line);
        let far = scene.far_processes();
        send(running.pid(), *signal);
        let ran = running.end();
        assert_eq!(ran.code, 130, "{line}\n{ran}");
        assert_end(&far);
        scene.assert_arrived("dst", &[]);
        assert_eq!(ran.events().last().unwrap()["event"], "end", "{line}\n{ran}");
    });
}

/// Ctrl-C in a terminal reaches the whole foreground group: ssh too, were it not in another one.
#[test]
fn a_signal_to_the_group_is_no_cut_connection() {
    use std::os::unix::process::CommandExt;
    let scene = slow_scene();
    let line = format!("{} --json --interval 0.1 --rate 2M", SLOW_COPIES[1]);
    let mut command = scene.command(&scene.words(&line));
    command.process_group(0);
    let mut running = run::start(command);
    running.wait_for_bytes();
    let far = scene.far_processes();
    let group = rustix::process::Pid::from_raw(running.pid()).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    assert_end(&far);
    scene.assert_arrived("dst", &[]);
}

/// A killed sink leaves only complete files, and the same command resumes.
fn assert_goes_on(scene: &Scene, line: &str) {
    scene.assert_arrived("dst", &[]);
    let ran = scene.succeed(&format!("{line} --json"));
    let events = ran.events();
    let held = &events.last().unwrap()["record"]["moved"]["resumed_bytes"];
    assert!(held.as_u64().is_some_and(|bytes| bytes > 0), "{line}: {held} were held\n{ran}");
    assert_same(&scene.path("src/big"), &scene.path("dst/big"));
    scene.assert_holds("dst", &["big"]);
}

#[test]
fn a_near_side_that_is_killed() {
    each(SLOW_COPIES, |line| {
        let scene = slow_scene();
        let running = under_way(&scene, line);
        let far = scene.far_processes();
        assert_eq!(far.is_empty(), !line.contains("far"), "{line}: the far side must be seen");
        data::wait_for_flush(&scene.path("dst"));
        send(running.pid(), Signal::KILL);
        running.end();
        assert_end(&far);
        assert_goes_on(&scene, line);
    });
}

/// Lost streams are replaced, and the run ends as without a loss.
fn assert_heals(scene: &Scene, line: &str, running: Running, far: &[i32]) {
    let ran = running.end();
    assert_eq!(ran.code, 0, "{line}\n{ran}");
    assert!(ran.stdout_text().contains("trying again"), "{line}\n{ran}");
    assert_end(far);
    assert_same(&scene.path("src/big"), &scene.path("dst/big"));
    scene.assert_holds("dst", &["big"]);
}

#[test]
fn a_connection_that_is_cut() {
    each(&SLOW_COPIES[1..], |line| {
        let scene = slow_scene();
        let running = under_way(&scene, line);
        let far = scene.far_processes();
        let ssh = children_named(running.pid(), "ssh");
        assert_eq!(ssh.len(), 1, "one ssh leads to the far side");
        send(ssh[0], Signal::KILL);
        assert_heals(&scene, line, running, &far);
    });
}

#[test]
fn a_far_side_that_is_killed() {
    each(&SLOW_COPIES[1..], |line| {
        let scene = slow_scene();
        let running = under_way(&scene, line);
        let peers = processes::named_exactly(&scene.far_program());
        assert!(!peers.is_empty(), "no far side is seen");
        peers.iter().for_each(|pid| send(*pid, Signal::KILL));
        assert_heals(&scene, line, running, &peers);
    });
}

#[test]
fn far_sides_that_send_rubbish() {
    // What runs in place of the far side, the exit code, and words of the message.
    let cases: [Case; 9] = [
        ("exit 0", 7, &["no datapump"]),
        ("echo Hello; exit 0", 8, &["Hello", "no datapump"]),
        ("echo 'datapump: command not found' >&2; exit 127", 8, &["command not found"]),
        ("head -c 1000000 /dev/zero; cat > /dev/null", 8, &["datapump"]),
        ("head -c 1000000 /dev/urandom; cat > /dev/null", 8, &["datapump"]),
        ("cat $0.hello; exec cat /dev/urandom", 9, &["peer"]),
        ("cat $0.hello; exit 0", 7, &["went away"]),
        ("head -c 20 $0.hello; exit 0", 7, &["went away"]),
        (CUT_IN_THE_MIDDLE, 7, &["went away"]),
    ];
    let lines = ["copy @/file far:@/out", "copy far:@/file @/out"];
    let cases = cases.iter().flat_map(|case| lines.map(|line| (line, case)));
    each(cases, |(line, (lines, code, words))| {
        let scene = set_up();
        scene.far_script(lines);
        let ours = concat!("datapump ", env!("CARGO_PKG_VERSION"));
        fs::write(scene.path("far-datapump.hello"), hello(VERSION_MIN, VERSION_MAX, ours)).unwrap();
        check_ran(lines, &scene.run(line), *code, words);
        assert!(!scene.path("out").exists(), "{lines}");
        assert_end(&scene.far_processes());
    });
}

#[test]
fn another_version_is_named_with_ours() {
    let scene = set_up();
    fs::write(scene.path("hello"), hello(98, 99, "datapump 99.8.7")).unwrap();
    scene.far_script(&format!("cat {}; exec cat > /dev/null", scene.path("hello").display()));
    let ours = concat!("datapump ", env!("CARGO_PKG_VERSION"));
    for line in ["copy @/file far:@/out", "copy far:@/file @/out"] {
        check_ran(line, &scene.run(line), 8, &["datapump 99.8.7", ours, "98 to 99"]);
        assert_end(&scene.far_processes());
    }
}

/// The real far side, cut off after its first 100 bytes.
const CUT_IN_THE_MIDDLE: &str = "exec 3<&0; mkfifo $0.fifo; $PROGRAM \"$@\" <&3 > $0.fifo & \
     dd bs=1 count=100 < $0.fifo 2> /dev/null; kill $!";

/// The mark and the hello of a far side, as docs/WIRE.md has them.
fn hello(version_min: u16, version_max: u16, program: &str) -> Vec<u8> {
    let mut fields = vec![1];
    fields.extend(version_min.to_le_bytes());
    fields.extend(version_max.to_le_bytes());
    fields.extend((program.len() as u16).to_le_bytes());
    fields.extend(program.as_bytes());
    let mut bytes = b"\0datapump-peer\0\n".to_vec();
    bytes.extend((fields.len() as u32).to_le_bytes());
    bytes.extend(fields);
    bytes
}

#[test]
fn what_a_login_shell_says_first_is_skipped() {
    let noises = [
        "echo 'Welcome to this machine.'",
        "head -c 60000 /dev/zero | tr '\\0' x; echo",
        "printf '\\0datapump-'; printf '\\0datapump-peer'",
        "echo noise >&2",
    ];
    each(noises, |noise| {
        let scene = set_up();
        scene.far_script(&format!("{noise}\nexec $PROGRAM \"$@\""));
        scene.succeed("copy @/file far:@/out");
        assert_same(&scene.path("file"), &scene.path("out"));
    });
}

/// A stranger that connects to the data port neither joins nor disturbs the transfer.
#[test]
fn strangers_at_the_data_port() {
    each(["tls", "auth", "off"], |seal| {
        let scene = slow_scene();
        let port = far::closed_port();
        let args = format!("copy @/src/big far:@/dst/big --seal {seal} --ports {port}-{port}");
        let running = under_way(&scene, &args);
        let strangers: Vec<TcpStream> = (0..20)
            .filter_map(|i| {
                let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
                // Every second one stays silent.
                (i % 2 == 0).then(|| stranger.write_all(&data::bytes(i, 5000)).ok());
                Some(stranger)
            })
            .collect();
        let ran = running.end();
        drop(strangers);
        assert_eq!(ran.code, 0, "{args}\n{ran}");
        assert_same(&scene.path("src/big"), &scene.path("dst/big"));
    });
}

#[test]
fn a_source_that_changes_while_it_is_read() {
    let sizes = [1000, 2 * SLOW_BYTES as u64];
    let cases = SLOW_COPIES.iter().flat_map(|line| sizes.map(|size| (line, size)));
    each(cases, |(line, size)| {
        let scene = slow_scene();
        let running = under_way(&scene, line);
        let source = fs::File::options().write(true).open(scene.path("src/big")).unwrap();
        source.set_len(*size).unwrap();
        let ran = running.end();
        check_ran(line, &ran, 4, &["big", "changed"]);
        scene.assert_holds("dst", &[]);
    });
}

#[test]
fn a_reader_that_goes_away() {
    each(["copy @/src/big -", "copy far:@/src/big -"], |line| {
        let scene = slow_scene();
        let command = scene.command(&scene.words(line));
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$@\" | head -c 100000 | wc -c", "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        let ran = run::to_end(shell, b"");
        assert_eq!(ran.stdout_text().trim(), "100000", "{ran}");
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        assert_end(&scene.far_processes());
    });
}

#[test]
fn help_and_version_need_nothing() {
    for (line, words) in [
        ("--version", env!("CARGO_PKG_VERSION")),
        ("--help", "copy"),
        ("help", "copy"),
        ("help copy", "slash"),
        ("copy --help", "slash"),
        ("copy -h", "slash"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' '));
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout_text().contains(words), "{line}: no '{words}'\n{ran}");
    }
}
