//! Every process ends: with connections that neither read nor write, and what is asked of ssh.

use crate::support;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;

use crate::support::liar::{near_on, opened};
use crate::support::processes::{assert_end, children_named, send};
use crate::support::run::{self, Running};
use crate::support::speaker::{Speaker, honest_follower, watch};
use crate::support::{Scene, data, each, need, need_root};
use base::job::Location;
use base::settings::Settings;
use base::units::Nanos;
use mover::wire::message::{Carries, Message, Role, WantedRanges};
use rustix::process::Signal;

/// A far side with unreachable ports: the data goes over the connection of ssh.
fn carried(scene: &Scene) {
    need_root("a network namespace is made");
    let unshare = need("unshare", "util-linux").display().to_string();
    need("ip", "iproute2");
    scene.far_script(&format!(
        "exec {unshare} --net sh -c 'ip link set lo up; exec \"$@\"' sh $PROGRAM \"$@\""
    ));
}

/// Files with such long names that some thousand of them fill every pipe and socket.
fn long_names(scene: &Scene) {
    let folder = scene.path("src");
    fs::create_dir(&folder).unwrap();
    for number in 0..20_000 {
        fs::write(folder.join(format!("{number:0>200}")), b"x").unwrap();
    }
}

fn start(scene: &Scene, line: &str) -> Running {
    let mut command = scene.command(&scene.words(&format!("{line} --json --interval 0.1")));
    command.process_group(0);
    run::start(command)
}

/// Stops the ssh of a run: from then on it neither reads nor writes.
fn stop_ssh(running: &Running) -> i32 {
    let ssh = children_named(running.pid(), "ssh");
    assert_eq!(ssh.len(), 1, "one ssh leads to the far side");
    send(ssh[0], Signal::STOP);
    ssh[0]
}

/// How a dead connection is detected, and its exit code.
#[derive(Clone, Copy, Debug)]
enum By {
    Silence,
    CtrlC,
}

const BY: [By; 2] = [By::Silence, By::CtrlC];

impl By {
    fn options(self) -> &'static str {
        match self {
            By::Silence => "--stall 2s --retry-for off",
            By::CtrlC => "--stall 600 --retry-for off",
        }
    }

    fn exit_code(self) -> i32 {
        match self {
            By::Silence => 7,
            By::CtrlC => 130,
        }
    }

    fn assert_ends(self, scene: &Scene, running: Running, ssh: i32) {
        if let By::CtrlC = self {
            send(running.pid(), Signal::INT);
        }
        let ran = running.end();
        assert_eq!(ran.code, self.exit_code(), "{ran}");
        assert_end(&[ssh]);
        assert_end(&scene.far_processes());
    }
}

#[test]
fn carried_data_that_nobody_takes() {
    let lines = ["copy --rate 8M @/src far:@/dst", "copy --rate 8M far:@/src @/dst"];
    each(lines.iter().flat_map(|line| BY.map(|by| (line, by))), |(line, by)| {
        let scene = Scene::new();
        carried(&scene);
        data::write_file(&scene.path("src"), 1, 80 << 20);
        let mut running = start(&scene, &format!("{line} {}", by.options()));
        running.wait_for_bytes();
        let ssh = stop_ssh(&running);
        by.assert_ends(&scene, running, ssh);
    });
}

/// More offers than all pipes and windows on the path hold, to a far side that stopped reading.
#[test]
fn offers_that_nobody_takes() {
    each(BY, |by| {
        let scene = Scene::new();
        long_names(&scene);
        scene.far_script("( head -c 65536; exec sleep 15 ) | $PROGRAM \"$@\"");
        let line = format!("copy -r @/src/ far:@/dst {}", by.options());
        let mut running = start(&scene, &line);
        running.wait_for("progress");
        let ssh = children_named(running.pid(), "ssh")[0];
        if let By::CtrlC = by {
            send(running.pid(), Signal::INT);
        }
        let ran = running.end();
        assert_eq!(ran.code, by.exit_code(), "{ran}");
        assert_end(&[ssh]);
    });
}

/// Before the first data stream: the far side is starting, or reading its disk.
#[test]
fn silence_before_the_first_byte() {
    // What the far side does instead of continuing: before its first message, and after it.
    let scripts = ["exec sleep 600", "printf '\\0datapump-peer\\0\\n'; exec sleep 600"];
    each(scripts.iter().flat_map(|script| BY.map(|by| (script, by))), |(script, by)| {
        let scene = Scene::new();
        scene.far_script(script);
        data::write_file(&scene.path("src"), 1, 1 << 20);
        let running = start(&scene, &format!("copy @/src far:@/dst {}", by.options()));
        support::until("an ssh", || !children_named(running.pid(), "ssh").is_empty());
        let ssh = children_named(running.pid(), "ssh")[0];
        by.assert_ends(&scene, running, ssh);
    });
}

/// A near side whose host is gone sends nothing and closes nothing: the far side ends all the same,
/// in every phase.
#[test]
fn a_near_side_that_says_no_more() {
    let cut = || Message::Cut(Settings::default().cut());
    // What it sends after its greeting before its host is gone: it asks for a file, or for a list
    // of names, and more.
    let carry = || Message::Carry(Carries::All);
    let phases: [(&str, Option<bool>, Vec<Message>); 5] = [
        ("greeted", None, Vec::new()),
        ("opened", Some(false), Vec::new()),
        ("has no stream", Some(false), vec![cut()]),
        ("has no names", Some(true), vec![cut(), carry()]),
        ("moves", Some(false), vec![cut(), carry()]),
    ];
    each(phases, |(_, asks, says)| {
        let scene = Scene::new();
        data::write_file(&scene.path("src"), 1, 64 << 20);
        let mut far = honest_follower(&scene);
        let (stdin, stdout) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
        let mut speaker = Speaker::driver(stdout, stdin);
        if let Some(listed) = *asks {
            let path = if listed { scene.path("") } else { scene.path("src") };
            let settings = Settings { stall: Nanos::from_millis(1000), ..Settings::default() };
            speaker.ask_for(Role::Source, vec![Location::Path(path)], settings, listed);
        }
        says.iter().for_each(|message| speaker.say(message));
        let watched = watch(far.id().cast_signed()).join().unwrap();
        assert!(!watched.killed, "it waits on");
        assert_eq!(far.wait().unwrap().code(), Some(7));
    });
}

/// Another service that answers at the far side's port.
fn answer(service: &str, mut connection: TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    let mut listen = |connection: &mut TcpStream| connection.read(&mut bytes);
    match service {
        "closes" => {}
        "sshd" => {
            connection.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n")?;
            listen(&mut connection)?;
            connection.write_all(b"Invalid SSH identification string.\r\n")?;
        }
        "http" => {
            listen(&mut connection)?;
            connection.write_all(
                &[b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), &[b' '; 99]].concat(),
            )?;
        }
        _echo => loop {
            match connection.read(&mut bytes)? {
                0 => break,
                count => connection.write_all(&bytes[..count])?,
            }
        },
    }
    Ok(())
}

/// With NAT or a proxy another service may answer at the far side's port: the data goes over ssh
/// then.
#[test]
fn another_service_at_the_data_port() {
    let services = ["closes", "sshd", "http", "echo"];
    let cases =
        services.iter().flat_map(|service| ["tls", "auth", "off"].map(|seal| (service, seal)));
    each(cases, |(service, seal)| {
        let scene = Scene::new();
        carried(&scene);
        data::write_file(&scene.path("src"), 1, 3 << 20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = service.to_string();
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|connection| drop(answer(&service, connection)));
        });
        let line = format!("copy @/src far:@/dst --seal {seal} --ports {port}-{port}");
        let ran = scene.succeed(&line);
        assert!(ran.stderr.contains("something else answers at 127.0.0.1"), "{ran}");
        assert!(ran.stderr.contains("over the control connection"), "{ran}");
        data::assert_same(&scene.path("src"), &scene.path("dst"));
    });
}

/// Ctrl-C in a terminal reaches every process that runs in it, at whatever moment.
#[test]
fn a_signal_to_the_group_while_it_logs_in() {
    each([Signal::INT, Signal::TERM], |signal| {
        let scene = Scene::new();
        scene.far_script("touch \"$0.started\"; sleep 600; exec $PROGRAM \"$@\"");
        data::write_file(&scene.path("src"), 1, 1 << 20);
        let running = start(&scene, "copy @/src far:@/dst --retry-for off");
        support::until("a login", || scene.path("far-datapump.started").exists());
        let group = rustix::process::Pid::from_raw(running.pid()).unwrap();
        rustix::process::kill_process_group(group, *signal).unwrap();
        let ran = running.end();
        assert_eq!(ran.code, 130, "{ran}");
        assert!(!ran.stdout_text().contains("port"), "no advice: {ran}");
    });
}

/// The message says which process ended and how, and the copy is tried again.
#[test]
fn ends_are_told_as_what_they_are() {
    let cases = [
        ("kill -9 $$", "was ended, or its connection was lost"),
        // The words are ssh's: it notices by a read or by a write, as it happens.
        ("kill -9 $PPID; sleep 1", "'ssh' said: "),
        ("exec $PROGRAM nonsense", "exit code 2"),
        ("echo a reason >&2; exit 255", "said: a reason"),
    ];
    each(cases, |(script, expect)| {
        let scene = Scene::new();
        scene.far_script(script);
        data::write_file(&scene.path("src"), 1, 1 << 20);
        let ran = scene.run("copy @/src far:@/dst --retry-for off");
        assert_eq!(ran.code, 7, "{ran}");
        assert!(ran.stderr.contains(expect), "{ran}");
    });
    // ssh itself.
    let scene = Scene::new();
    scene.script("ssh", "kill -9 $$");
    data::write_file(&scene.path("src"), 1, 1 << 20);
    let ran = scene.run("copy @/src far:@/dst --retry-for off --ssh @/ssh");
    assert_eq!(ran.code, 7, "{ran}");
    assert!(ran.stderr.contains("SIGKILL"), "{ran}");
}

/// A far side that is killed while it starts is started again.
#[test]
fn a_far_side_that_is_killed_while_it_starts() {
    let scene = Scene::new();
    scene.far_script(
        "if [ -e \"$0.second\" ]; then exec $PROGRAM \"$@\"; fi; touch \"$0.second\"; kill -9 $$",
    );
    data::write_file(&scene.path("src"), 1, 1 << 20);
    let ran = scene.succeed("copy @/src far:@/dst --json");
    assert!(ran.stdout_text().contains("trying again"), "{ran}");
    data::assert_same(&scene.path("src"), &scene.path("dst"));
}

/// ssh ends with the near side, whatever its connection does.
#[test]
fn ssh_ends_with_its_near_side() {
    let scene = Scene::new();
    data::write_file(&scene.path("src"), 1, 16 << 20);
    let mut running = start(&scene, "copy @/src far:@/dst --rate 1M");
    running.wait_for_bytes();
    let ssh = children_named(running.pid(), "ssh");
    assert_eq!(ssh.len(), 1);
    // By its pipes alone it would not notice: what it writes goes nowhere.
    send(running.pid(), Signal::KILL);
    assert_end(&ssh);
    running.end();
}

/// No agent, display or port is forwarded to the far host, whatever a configuration says.
#[test]
fn ssh_lends_nothing() {
    let scene = Scene::new();
    data::write_file(&scene.path("src"), 1, 10);
    fs::write(
        scene.path("config"),
        "Host *\n ForwardAgent yes\n ForwardX11 yes\n LocalForward 127.0.0.1:1 127.0.0.1:2\n \
         RemoteForward 3 127.0.0.1:4\n PermitLocalCommand yes\n LocalCommand true\n \
         RemoteCommand true\n Tunnel yes\n",
    )
    .unwrap();
    let ssh = need("ssh", "openssh-client");
    // Stands for ssh: prints the configuration that ssh would use for these arguments.
    fs::create_dir(scene.path("bin")).unwrap();
    let said = scene.path("said").display().to_string();
    // It is also asked for its configuration, to find the host's address.
    let script = format!(
        "case \" $* \" in *' -G '*) exec {ssh} \"$@\";; esac\n\
         {ssh} -G \"$@\" > {said}; exit 255",
        ssh = ssh.display()
    );
    scene.script("bin/ssh", &script);
    scene.run("copy @/src other:@/dst --retry-for off --remote-datapump x --ssh @/bin/ssh");
    let plain = scene.path("config").display().to_string();
    fs::remove_file(scene.path("said")).unwrap();
    let mut words = scene.words("copy @/src other:@/dst --retry-for off --remote-datapump x");
    words
        .extend(["--ssh".into(), format!("{}/ssh -F {plain}", scene.path("bin").display()).into()]);
    run::to_end(scene.command(&words), b"");
    let said = fs::read_to_string(scene.path("said")).unwrap();
    let expect = [
        "forwardagent no",
        "forwardx11 no",
        "permitlocalcommand no",
        "tunnel false",
        "clearallforwardings yes",
        "requesttty false",
    ];
    for line in expect {
        assert!(said.lines().any(|said| said == line), "no '{line}' in\n{said}");
    }
    for word in ["localforward", "remoteforward", "remotecommand true"] {
        assert!(!said.contains(word), "'{word}' in\n{said}");
    }
}

/// A far sink has work left after its last file, and reports when it is done: one that ends before
/// has not done it.
#[test]
fn a_far_sink_that_goes_before_its_last_word() {
    each([(None, 7), (Some(Message::Report(Box::default())), 0)], |(last_word, code)| {
        let scene = Scene::new();
        fs::write(scene.path("in"), b"").unwrap();
        let ways = "--retry-for off @/in 127.0.0.1:@/out";
        let (ran, _) = near_on(&scene, ways, opened(None), |speaker, connection| {
            while !matches!(speaker.hear(), Some(Message::OfferEnd { .. }) | None) {}
            speaker.say(&Message::Want { first: 0, wanted: vec![WantedRanges::All] });
            speaker.say(&Message::Finished { objects: vec![(0, None)] });
            last_word.iter().for_each(|word| speaker.say(word));
            while !matches!(speaker.hear(), Some(Message::Carried(_)) | None) {}
            connection.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert_eq!(ran.code, *code, "{ran}");
    });
}
