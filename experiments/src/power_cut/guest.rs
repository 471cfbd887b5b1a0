//! The guest with the sink: a Debian kernel in an emulator, with datapump and its dependencies in a
//! file system in memory, and one disk.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::image::FileSystem;
use xtask::step::output;

/// Shared by all boots.
pub(super) struct Machine {
    kernel: PathBuf,
    /// The file system in memory (initrd).
    initrd: PathBuf,
    /// Ports on the host's loopback: to start a far side, and for its streams.
    pub login_port: u16,
    pub data_port: u16,
}

impl Machine {
    /// Assembles the guest's files in `folder`.
    pub(super) fn make(folder: &Path, program: &Path) -> Result<Machine, String> {
        let (kernel, modules) = kernel()?;
        let mut archive = Archive::default();
        for path in ["bin", "dev", "etc", "m", "proc", "sink", "sys", "tmp"] {
            archive.folder(path);
        }
        archive.program("init", INIT.as_bytes());
        archive.program("start", START.as_bytes());
        archive.program("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n");
        archive.file("bin/busybox", Path::new("/bin/busybox"))?;
        let stripped = folder.join("datapump");
        output(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
        archive.file("bin/datapump", &stripped)?;
        let socat = Path::new("/usr/bin/socat");
        archive.file("bin/socat", socat)?;
        for library in libraries(&[program, socat])? {
            archive.file(library.to_string_lossy().trim_start_matches('/'), &library)?;
        }
        let mut order = String::new();
        for (number, module) in needed_modules(&modules)?.iter().enumerate() {
            archive.file(&format!("m/{number}.ko"), &modules.join(module))?;
            order.push_str(&format!("/m/{number}.ko\n"));
        }
        archive.program("m/order", order.as_bytes());
        let initrd = folder.join("initrd");
        fs::write(&initrd, archive.end()).map_err(|why| format!("{}: {why}", initrd.display()))?;
        Ok(Machine { kernel, initrd, login_port: free_port()?, data_port: free_port()? })
    }

    /// Starts a guest with the disk at this socket, and waits until it accepts logins.
    pub(super) fn boot(&self, socket: &Path, kind: FileSystem) -> Result<Guest, String> {
        let (login, data) = (self.login_port, self.data_port);
        // The guest ends with this program, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]);
        command.args("-accel tcg,thread=multi -cpu max -smp 2 -m 640 -nodefaults".split(' '));
        command.args("-no-user-config -display none -no-reboot -serial stdio".split(' '));
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initrd);
        // On a busy host the emulated timer is late, and the kernel would refuse to boot.
        let line = format!(
            "console=ttyS0 quiet panic=-1 no_timer_check sink={} ports={data}",
            kind.name()
        );
        command.arg("-append").arg(line);
        let disk = "driver=nbd,node-name=disk,server.type=unix,server.path=";
        command.arg("-blockdev").arg(format!("{disk}{}", socket.display()));
        command.arg("-device").arg(
            "virtio-blk-pci,drive=disk,logical_block_size=4096,physical_block_size=4096,\
             write-cache=on",
        );
        let forward = |port: u16, to: u16| format!("hostfwd=tcp:127.0.0.1:{port}-:{to}");
        let (login, data) = (forward(login, LOGIN_PORT), forward(data, data));
        command.arg("-netdev").arg(format!("user,id=net,restrict=on,{login},{data}"));
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("qemu-system-x86_64: {why}"))?;
        let console = Arc::new(Mutex::new(String::new()));
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|pipe| Box::new(pipe) as _),
            child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        for pipe in pipes.into_iter().flatten() {
            let console = console.clone();
            thread::spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    let mut console = console.lock().unwrap_or_else(PoisonError::into_inner);
                    console.push_str(&String::from_utf8_lossy(&line));
                    console.push('\n');
                }
            });
        }
        let mut guest = Guest { child, console };
        guest.wait_until_ready()?;
        Ok(guest)
    }
}

/// A running guest. It is killed on drop.
pub(super) struct Guest {
    child: Child,
    console: Arc<Mutex<String>>,
}

impl Guest {
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + BOOTS_WITHIN;
        while !self.said(READY) {
            let ended = self.child.try_wait().map_err(|why| why.to_string())?;
            if ended.is_some() || self.said(FAILED) || Instant::now() > deadline {
                self.kill();
                return Err(format!("the guest does not start:\n{}", self.last_words()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn said(&self, word: &str) -> bool {
        self.console.lock().unwrap_or_else(PoisonError::into_inner).contains(word)
    }

    /// The last lines of its console.
    pub(super) fn last_words(&self) -> String {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = console.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Like a power cut: SIGKILL.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In place of ssh: sends the far command to the guest, then forwards bytes both ways.
pub(crate) fn connect(port: &str, command: &[&str]) -> Result<(), String> {
    let text = |why: std::io::Error| format!("connect to the guest: {why}");
    let port: u16 = port.parse().map_err(|_| format!("{port} is no port"))?;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(text)?;
    let line = command.last().ok_or("the far command is missing")?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(text)?;
    let mut there = stream.try_clone().map_err(text)?;
    thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut there);
        let _ = there.shutdown(Shutdown::Write);
    });
    let mut out = std::io::stdout();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => {
                out.write_all(&buffer[..count]).and_then(|()| out.flush()).map_err(text)?
            }
        }
    }
}

/// The newest kernel on this host that has its modules: its file, and their folder.
fn kernel() -> Result<(PathBuf, PathBuf), String> {
    let names = fs::read_dir("/lib/modules").into_iter().flatten().filter_map(Result::ok);
    let pair = |version: String| {
        let kernel = PathBuf::from(format!("/boot/vmlinuz-{version}"));
        (kernel, PathBuf::from(format!("/lib/modules/{version}")))
    };
    let pairs = names.map(|entry| pair(entry.file_name().to_string_lossy().into_owned()));
    let there = pairs.filter(|(kernel, folder)| kernel.exists() && folder.join(DEPS).exists());
    there.max().ok_or_else(|| {
        "no kernel with modules is installed: apt-get install linux-image-cloud-amd64".to_string()
    })
}

/// The modules for the guest, each after its dependencies; built-in ones have no file.
fn needed_modules(folder: &Path) -> Result<Vec<String>, String> {
    let path = folder.join(DEPS);
    let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let needs: BTreeMap<&str, &str> = lines.collect();
    let mut order: Vec<String> = Vec::new();
    for name in MODULES {
        let file = format!("/{name}.ko");
        let Some((module, needed)) = needs.iter().find(|(module, _)| module.ends_with(&file))
        else {
            continue;
        };
        for module in needed.split_whitespace().rev().chain([*module]) {
            if !order.iter().any(|known| known == module) {
                order.push(module.to_string());
            }
        }
    }
    Ok(order)
}

/// Shared libraries of these programs.
fn libraries(programs: &[&Path]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for program in programs {
        for line in output(Command::new("ldd").arg(program))?.lines() {
            let path = line.split_whitespace().find(|word| word.starts_with('/'));
            found.extend(path.map(PathBuf::from));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| why.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|why| why.to_string())
}

/// A file system in memory, in the format that the kernel unpacks (cpio, "newc").
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: Vec<String>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, path: &str) {
        if !path.is_empty() && !self.folders.iter().any(|known| known == path) {
            self.folder(path.rsplit_once('/').map_or("", |(above, _)| above));
            self.folders.push(path.to_string());
            self.entry(path, 0o040_755, &[]);
        }
    }

    fn program(&mut self, path: &str, bytes: &[u8]) {
        self.folder(path.rsplit_once('/').map_or("", |(above, _)| above));
        self.entry(path, 0o100_755, bytes);
    }

    fn file(&mut self, path: &str, from: &Path) -> Result<(), String> {
        let bytes = fs::read(from).map_err(|why| format!("{}: {why}", from.display()))?;
        self.program(path, &bytes);
        Ok(())
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let mut fields = [0; 13];
        (fields[0], fields[1], fields[4]) = (self.entries, mode, 1);
        (fields[6], fields[11]) = (bytes.len() as u32, path.len() as u32 + 1);
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

const DEPS: &str = "modules.dep";
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_blk", "virtio_net", "blake2b_generic", "xfs", "btrfs"];
/// 1B58 in hexadecimal, as the guest's first process has it.
const LOGIN_PORT: u16 = 7000;
const READY: &str = "sink is ready";
const FAILED: &str = "sink has failed";
const BOOTS_WITHIN: Duration = Duration::from_secs(180);

/// The first process (init) of the guest.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /m/order); do insmod $module; done
for word in $(cat /proc/cmdline); do case $word in sink=*) sink=${word#sink=};; esac; done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up || echo "sink has failed: no network"
if ! mount -t $sink /dev/vda /sink; then
    echo "sink has failed: mount"
    dmesg | tail -20
    sleep 1
    poweroff -f
fi
socat TCP-LISTEN:7000,fork,reuseaddr EXEC:/start &
until grep -q ":1B58 00000000:0000 0A" /proc/net/tcp; do usleep 20000; done
echo "sink is ready"
wait
"#;

/// Starts the far side that a line requests. Its streams arrive at the host's loopback.
const START: &str = r#"#!/bin/busybox sh
export PATH=/bin SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"
read -r line
exec sh -c "$line"
"#;
