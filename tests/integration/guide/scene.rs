//! Two hosts and a store for a page of the guide: roots of their own, with the system's programs,
//! in namespaces of their own. So what a page names is where the page says, and nothing of it is on
//! this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::SHIPPED;
use crate::support::{gateway, need, need_root, run};

/// A command of a page.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Of the page, from 1.
    pub number: usize,
    /// What is typed; behind one that is typed again stands ` (2)`.
    pub name: String,
    pub run: String,
    /// Shell that is run before it.
    pub before: String,
}

/// What a command came to. Without a code it was not reached.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub code: Option<i32>,
    pub output: String,
}

/// The hosts of a page, before they run.
#[derive(Debug)]
pub(super) struct Scene {
    folder: tempfile::TempDir,
    has_store: bool,
    /// Shell that makes what the page names.
    prepare: String,
}

impl Scene {
    pub(super) fn new(prepare: &str, has_store: bool) -> Scene {
        need_root("hosts are mount namespaces");
        for (program, package) in [
            ("unshare", "util-linux"),
            ("ip", "iproute2"),
            ("sshd", "openssh-server"),
            ("openssl", "openssl"),
            ("jq", "jq"),
        ] {
            need(program, package);
        }
        let folder = tempfile::Builder::new().prefix("datapump-guide-").tempdir().unwrap();
        let prepare = prepare.to_string();
        Scene { folder, has_store, prepare }
    }

    /// Where this host will find its results store.
    pub(super) fn results(&self) -> PathBuf {
        let folder = self.path("near/root/.local/state/datapump");
        fs::create_dir_all(&folder).unwrap();
        folder.join("results.db")
    }

    /// No host has a datapump in the PATH of a login.
    pub(super) fn far_host_is_bare(&self) {
        fs::write(self.path("bare"), "").unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the lines in their order, in one shell of this host.
    pub(super) fn play(&self, lines: &[Line]) -> (Vec<Ended>, run::Ran) {
        let page = [HERE, LINE, &self.prepare, &script(lines)].join("\n");
        fs::write(self.path("page"), page).unwrap();
        let mut hosts = Command::new("unshare");
        hosts.args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"]);
        hosts.args(["sh", "-euc", HOSTS, "sh"]).arg(self.folder.path());
        hosts.arg(SHIPPED.program.parent().unwrap());
        hosts.arg(if self.has_store { gateway::tool("versitygw") } else { PathBuf::new() });
        hosts.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let ran = run::to_end(hosts, b"");
        let out = self.path("near/out");
        ((0..lines.len()).map(|at| Ended::of(&out, at)).collect(), ran)
    }
}

impl Ended {
    /// Of a line by its number.
    pub(super) fn of(out: &Path, at: usize) -> Ended {
        let read = |name: String| fs::read(out.join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&read(name)).into_owned();
        Ended { code: text(format!("{at}.code")).trim().parse().ok(), output: text(at.to_string()) }
    }
}

/// Shell that runs these lines; `LINE` and what they need come before it.
pub(super) fn script(lines: &[Line]) -> String {
    let one = |(at, line): (usize, &Line)| {
        format!("{}\nline {at} <<'LINE'\n{}\nLINE\n", line.before, line.run)
    };
    lines.iter().enumerate().map(one).collect()
}

/// Runs a line and keeps its output and its exit code.
pub(super) const LINE: &str = r#"
line() {
  typed=$(cat)
  eval "$typed" < /dev/null > "$OUT/$1" 2>&1
  echo $? > "$OUT/$1.code"
}
"#;

/// The first process: `$1` is the folder, `$2` that of the program as it is shipped, `$3` the
/// program of the store or nothing. Both hosts have the account that it runs in, and some more;
/// `dtn1` is this host, all other names are the far one.
const HOSTS: &str = r##"
mount --make-rprivate /
hostname dtn1
ip link set lo up
cd "$1"
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
accounts='user:x:70001:70001::/user:/bin/bash
alice:x:70002:70002::/:/bin/bash'
root() {
  mkdir -p "$1/root/.ssh" "$1/user" "$1/usr" "$1/proc" "$1/dev" "$1/sys" "$1/run/sshd" \
    "$1/opt/datapump" "$1/var/tmp" "$1/tmp" "$1/mnt/backup" "$1/store" "$1/archive"
  mount --bind "$1" "$1"
  chmod 1777 "$1/tmp" "$1/var/tmp" "$1/store"
  chmod 700 "$1/root"
  chown 70001:70001 "$1/user"
  for link in bin sbin lib lib32 lib64 libx32; do
    if test -L "/$link"; then cp -a "/$link" "$1/"; fi
  done
  cp -a /etc "$1/etc"
  echo "$accounts" >> "$1/etc/passwd"
  printf 'user:x:70001:\nphysics:x:70003:\n' >> "$1/etc/group"
  printf '127.0.0.1 localhost dtn1 gateway.example.org\n127.0.0.2 dtn2\n' > "$1/etc/hosts"
  cp host "$1/etc/ssh/key"
  cp user.pub "$1/etc/ssh/keys"
  mount --rbind /usr "$1/usr"
  mount -o remount,bind,ro "$1/usr"
  mount --rbind /dev "$1/dev"
  mount -t proc proc "$1/proc"
  mount -t sysfs -o ro sysfs "$1/sys"
  mount --bind "$4" "$1/opt/datapump"
  {
    for port in $3; do echo "ListenAddress $2:$port"; done
    echo "HostKey /etc/ssh/key
AuthorizedKeysFile /etc/ssh/keys
KexAlgorithms curve25519-sha256
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100:30:200
PrintMotd no
PrintLastLog no
SetEnv SHLVL=2 $5
Subsystem sftp internal-sftp"
  } > "$1/etc/ssh/sshd_config"
  chroot "$1" /usr/sbin/sshd -D -E /var/sshd.log &
}
path='PATH=/opt/datapump:/usr/bin:/bin'
test ! -e bare || path=
root near 127.0.0.1 22 "$2" "$path"
root far 127.0.0.2 '22 2222' "$2" "$path"
cp user near/root/.ssh/id_ed25519
cat > near/root/.ssh/config <<END
Host dtn1 node1 node2
 HostName 127.0.0.1
Host dtn2 dtn3
 HostName 127.0.0.2
Host *
 BatchMode yes
 ConnectTimeout 10
END
key=$(cut -d' ' -f1,2 host.pub)
echo "127.0.0.1,127.0.0.2,[127.0.0.2]:2222 $key" > near/root/.ssh/known_hosts
if test -n "$3"; then
  mkdir -p store/archive near/root/.aws
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj /CN=gateway.example.org -addext subjectAltName=DNS:gateway.example.org \
    -addext basicConstraints=critical,CA:FALSE -keyout store.key -out store.pem 2> store.said
  cat store.pem >> near/etc/ssl/certs/ca-certificates.crt
  for profile in default 'profile work'; do
    printf '[%s]\nendpoint_url = https://gateway.example.org\n' "$profile"
  done > near/root/.aws/config
  for profile in default work; do
    printf '[%s]\naws_access_key_id = key\naws_secret_access_key = secret\n' "$profile"
  done > near/root/.aws/credentials
  ROOT_ACCESS_KEY=key ROOT_SECRET_KEY=secret "$3" --port 127.0.0.1:443 --quiet \
    --cert "$1/store.pem" --key "$1/store.key" posix store > /dev/null 2>&1 &
fi
mkdir near/out
cp page near/page
exec chroot near env -i HOME=/root USER=root PATH=/opt/datapump:/usr/sbin:/usr/bin:/sbin:/bin \
  LANG=C.UTF-8 OUT=/out bash /page
"##;

/// The beginning of what this host runs: a folder to type in, with the files that all pages name.
const HERE: &str = r#"
port_open() { (: < "/dev/tcp/$1/$2") 2> /dev/null; }
until port_open 127.0.0.1 22 && port_open 127.0.0.2 2222; do sleep 0.02; done
test ! -e ~/.aws || until port_open 127.0.0.1 443; do sleep 0.02; done
far() { ssh dtn2 "$@"; }
mkdir -p ~/files/project/src ~/files/project/build && cd ~/files || exit
for name in a b c; do head -c 30000 /dev/urandom > "project/src/$name.rs"; done
touch project/src/a.o project/build/out
ln -s src/a.rs project/link
for name in big.tar big.dat movies.tar; do head -c 8M /dev/urandom > "$name"; done
"#;
