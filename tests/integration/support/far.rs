//! A real sshd on loopback, with keys and a configuration of its own, shared by one test program.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use super::{is_root, need};
use cluster::Cluster;

/// What `--ssh` takes so that `far:` is the private sshd.
pub(crate) fn ssh_command() -> String {
    format!("ssh -F {}", SSHD.config.display())
}

/// What `--ssh` takes so that `far:` is the private sshd, `far2:` another with keys and a port of
/// its own, and `refused:` a port where nobody listens.
pub(crate) fn ssh_command_to_hosts(folder: &Path) -> String {
    let config = folder.join("hosts-config");
    let refused = format!("Host refused\n HostName 127.0.0.1\n Port {}\n", closed_port());
    let host = |name: &str, sshd: &Sshd| sshd.client_config(name, &sshd.folder.join("user"));
    let all = [refused, host("far2", &SECOND), host("far", &SSHD)].concat();
    fs::write(&config, all).unwrap();
    format!("ssh -F {}", config.display())
}

/// The private sshd's own port.
pub(crate) fn port() -> u16 {
    SSHD.port
}

/// A loopback port without a listener.
pub(crate) fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The same with a key of its own, made in this folder, that `authorized_keys` limits to a command,
/// whatever is asked for.
pub(crate) fn ssh_command_forced(folder: &Path, forced: &str) -> String {
    let key = folder.join("key");
    make_key(&key);
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let mut keys = fs::OpenOptions::new().append(true).open(SSHD.folder.join("forced")).unwrap();
    keys.write_all(format!("restrict,command=\"{forced}\" {public}").as_bytes()).unwrap();
    let config = folder.join("forced-config");
    fs::write(&config, SSHD.client_config("far", &key)).unwrap();
    format!("ssh -F {}", config.display())
}

/// Starts an sshd for each name on the host of a cluster's controller, and writes a configuration
/// of ssh that leads there from each of the cluster's hosts.
pub(crate) fn hosts_of(cluster: &Cluster, names: &[&str]) -> FarHosts {
    let start = |_: &&str| started(&|| cluster.login("/bin/sh"), &cluster.address(0));
    let sshds: Vec<Sshd> = names.iter().map(start).collect();
    let one = |(name, sshd): (&&str, &Sshd)| sshd.client_config(name, &sshd.folder.join("user"));
    let config = cluster.path().join("far-hosts");
    fs::write(&config, names.iter().zip(&sshds).map(one).collect::<String>()).unwrap();
    FarHosts { config, _sshds: sshds }
}

/// They end with it.
pub(crate) struct FarHosts {
    pub(crate) config: PathBuf,
    _sshds: Vec<Sshd>,
}

struct Sshd {
    folder: PathBuf,
    config: PathBuf,
    address: String,
    port: u16,
    /// Ends sshd and removes the folder when its standard input closes, however this program ends.
    _keeper: Child,
}

static SSHD: LazyLock<Sshd> = LazyLock::new(started_here);
static SECOND: LazyLock<Sshd> = LazyLock::new(started_here);

fn started_here() -> Sshd {
    started(&|| Command::new("/bin/sh"), "127.0.0.1")
}

/// `shell` runs where the sshd is to be.
fn started(shell: &dyn Fn() -> Command, address: &str) -> Sshd {
    if is_root() {
        // sshd needs this folder for privilege separation.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    // Another process may take the port before sshd binds it.
    (0..5).find_map(|_| start(shell(), address)).expect("sshd does not start: see its words above")
}

fn make_key(path: &Path) {
    let keygen = need("ssh-keygen", "openssh-client");
    let made =
        Command::new(keygen).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success(), "ssh-keygen failed");
}

fn start(mut keeper: Command, address: &str) -> Option<Sshd> {
    need("ssh", "openssh-client");
    let folder = tempfile::Builder::new().prefix("datapump-sshd-").tempdir().unwrap().keep();
    let folder = folder.as_path();
    for name in ["host", "user"] {
        make_key(&folder.join(name));
    }
    let port = closed_port();
    fs::write(folder.join("sshd_config"), sshd_config(folder, address, port)).unwrap();
    let host_key = fs::read_to_string(folder.join("host.pub")).unwrap();
    fs::write(folder.join("known"), format!("[{address}]:{port} {host_key}")).unwrap();
    let config = folder.join("config");
    fs::write(folder.join("forced"), "").unwrap();

    let listens = format!("Server listening on {address}");
    keeper.args(["-c", KEEPER, "keeper"]).arg(need("sshd", "openssh-server")).arg(folder);
    keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut keeper: Child = keeper.spawn().unwrap();
    let mut words = BufReader::new(keeper.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in words.by_ref() {
        let decided = [&*listens, ENDED].iter().any(|sign| line.contains(sign));
        said.push(line);
        if decided {
            break;
        }
    }
    if !said.last().is_some_and(|line| line.contains(&listens)) {
        println!("sshd: {}", said.join("\n"));
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        return None;
    }
    std::thread::spawn(move || words.count());
    let (folder, address) = (folder.to_path_buf(), address.to_string());
    let sshd = Sshd { folder, config, address, port, _keeper: keeper };
    fs::write(&sshd.config, sshd.client_config("far", &sshd.folder.join("user"))).unwrap();
    Some(sshd)
}

fn sshd_config(folder: &Path, address: &str, port: u16) -> String {
    let folder = folder.display();
    // The usual exchange of keys, safe from quantum computers, takes 80 ms of CPU time a login.
    format!(
        "ListenAddress {address}:{port}\nHostKey {folder}/host\nKexAlgorithms curve25519-sha256\n\
         AuthorizedKeysFile {folder}/user.pub {folder}/forced\n\
         PidFile {folder}/pid\nStrictModes no\n\
         UsePAM no\nPermitRootLogin prohibit-password\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100:30:200\n\
         PrintMotd no\nPrintLastLog no\nSetEnv SHLVL=2\nSubsystem sftp internal-sftp\n"
    )
}

impl Sshd {
    /// A name leads to this sshd. SHLVL=2 above keeps the account's start-up files out.
    fn client_config(&self, name: &str, identity: &Path) -> String {
        let Sshd { folder, address, port, .. } = self;
        let (folder, identity) = (folder.display(), identity.display());
        format!(
            "Host {name}\n HostName {address}\n Port {port}\n \
             IdentityFile {identity}\n IdentitiesOnly yes\n \
             UserKnownHostsFile {folder}/known\n StrictHostKeyChecking yes\n BatchMode yes\n\
             Host *\n BatchMode yes\n ConnectTimeout 10\n"
        )
    }
}

const ENDED: &str = "sshd has ended";

/// Ends sshd and removes its folder as soon as standard input closes, also after Ctrl-C.
const KEEPER: &str = "trap : INT TERM
( \"$1\" -D -e -f \"$2/sshd_config\" < /dev/null; echo 'sshd has ended' >&2 ) &
cat > /dev/null
kill $(cat \"$2/pid\"); wait; rm -rf \"$2\"";
