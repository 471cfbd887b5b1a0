//! Other programs that tests and benches use, as Debian packages.

use std::path::Path;
use std::process::Command;

use crate::step;

/// A package and a program in it.
pub type Part = (&'static str, &'static str);

/// What `cargo xtask test` needs.
pub const FOR_TESTS: &[Part] = &[
    ("openssh-server", "sshd"),
    ("openssh-client", "ssh"),
    ("rsync", "rsync"),
    ("iperf3", "iperf3"),
    ("socat", "socat"),
    ("tcpdump", "tcpdump"),
    ("valgrind", "valgrind"),
    ("iproute2", "ip"),
    ("iputils-ping", "ping"),
    ("procps", "ps"),
    ("diffutils", "cmp"),
    ("b3sum", "b3sum"),
    ("xxhash", "xxhsum"),
    ("git", "git"),
    ("attr", "getfattr"),
    ("acl", "setfacl"),
    ("util-linux", "setpriv"),
    ("e2fsprogs", "mkfs.ext4"),
    ("quota", "setquota"),
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
    ("exfatprogs", "mkfs.exfat"),
    ("exfat-fuse", "mount.exfat-fuse"),
    ("dosfstools", "mkfs.vfat"),
    ("fusefat", "fusefat"),
    ("ntfs-3g", "mkfs.ntfs"),
    ("sshfs", "sshfs"),
    ("bindfs", "bindfs"),
    ("unionfs-fuse", "unionfs"),
    ("mergerfs", "mergerfs"),
    ("shellcheck", "shellcheck"),
    ("zsh", "zsh"),
    ("fish", "fish"),
    ("tcsh", "tcsh"),
    ("chromium", "chromium"),
    ("tcptrace", "tcptrace"),
    ("xplot-xplot.org", "xplot.org"),
    ("xvfb", "Xvfb"),
    ("x11-apps", "xwd"),
    ("fonts-dejavu-core", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
    ("python3", "python3"),
    ("python3-cryptography", "/usr/lib/python3/dist-packages/cryptography"),
    ("rclone", "rclone"),
    ("s3cmd", "s3cmd"),
    ("s3fs", "s3fs"),
    ("openssl", "openssl"),
    ("curl", "curl"),
    ("prometheus", "prometheus"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
    ("systemd", "systemd-analyze"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("slurm-client", "sbatch"),
    ("munge", "munged"),
];

/// What `cargo xtask install-matrix` needs besides.
pub const FOR_INSTALLS: &[Part] = &[
    ("mksh", "mksh"),
    ("ksh93u+m", "ksh93"),
    ("busybox-static", "busybox"),
    ("zstd", "zstd"),
    ("binutils", "strip"),
];

/// What `cargo xtask release` needs, besides `rustup` and what it gets from the Python index.
pub const FOR_RELEASE: &[Part] = &[
    ("git", "git"),
    ("tar", "tar"),
    ("gzip", "gzip"),
    ("dpkg", "dpkg-deb"),
    ("rpm", "rpmbuild"),
    ("python3", "/usr/bin/python3"),
    ("python3-venv", "/usr/share/doc/python3-venv"),
    ("python3-wheel", "/usr/lib/python3/dist-packages/wheel"),
];

/// What `cargo xtask release --check` needs besides.
pub const FOR_RELEASE_CHECK: &[Part] = &[
    ("lintian", "lintian"),
    ("debootstrap", "debootstrap"),
    ("rpm", "rpm"),
    ("qemu-user-static", "qemu-aarch64-static"),
    ("util-linux", "unshare"),
    ("diffutils", "diff"),
];

/// Packages for `cargo xtask bench`; the tools under comparison are used where they are installed.
pub const FOR_BENCHES: &[Part] = &[
    ("openssh-server", "sshd"),
    ("openssh-client", "scp"),
    ("rsync", "rsync"),
    ("iperf3", "iperf3"),
    ("socat", "socat"),
    ("iproute2", "ip"),
    ("fio", "fio"),
    ("e2fsprogs", "mkfs.ext4"),
];

/// What `cargo xtask bench walk` needs.
pub const FOR_WALKS: &[Part] = &[("fpart", "fpart"), ("fd-find", "fdfind")];

/// What `cargo xtask wan` needs.
pub const FOR_WAN: &[Part] = &[
    ("openssh-server", "sshd"),
    ("openssh-client", "ssh"),
    ("iproute2", "ip"),
    ("iproute2", "tc"),
    ("iputils-ping", "ping"),
    ("iperf3", "iperf3"),
];

/// What `cargo xtask power-cut` needs.
pub const FOR_POWER_CUTS: &[Part] = &[
    ("qemu-system-x86", "qemu-system-x86_64"),
    // Its installation links the newest kernel here.
    ("linux-image-cloud-amd64", "/vmlinuz"),
    ("busybox-static", "busybox"),
    ("socat", "socat"),
    ("util-linux", "setpriv"),
    ("binutils", "strip"),
    ("libc-bin", "ldd"),
    ("e2fsprogs", "mkfs.ext4"),
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
];

/// Makes sure that these packages are installed: installs missing ones if allowed, else names them.
pub fn ensure(parts: &[Part]) -> Result<(), String> {
    println!("\n== packages");
    let missing = missing(parts);
    if missing.is_empty() {
        println!("all are installed");
        return Ok(());
    }
    let names = missing.join(" ");
    if !may_install() {
        return Err(format!(
            "missing parts; as root: apt-get install --no-install-recommends {names}"
        ));
    }
    println!("installing {names}");
    // A failed update is reported only if the installation fails too: old lists may do.
    let updated = step::output(&mut apt("update --quiet=2"));
    let installed =
        step::output(&mut apt(&format!("install --yes --no-install-recommends {names}")));
    match (updated, installed) {
        (_, Ok(_)) => {}
        (Ok(_), Err(log)) => return Err(log),
        (Err(update), Err(log)) => return Err(format!("{update}\n{log}")),
    }
    match self::missing(parts).as_slice() {
        [] => Ok(()),
        still => Err(format!("installed, and yet without their programs: {}", still.join(" "))),
    }
}

/// True when a program is in one of the folders that commands come from.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"]);
    folders.into_iter().any(|folder| Path::new(folder).join(program).exists())
}

fn missing(parts: &[Part]) -> Vec<&'static str> {
    let absent = parts.iter().filter(|(_, program)| !is_installed(program));
    absent.map(|(package, _)| *package).collect()
}

fn may_install() -> bool {
    rustix::process::geteuid().is_root() && is_installed("apt-get")
}

fn apt(words: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.args(words.split_whitespace()).env("DEBIAN_FRONTEND", "noninteractive");
    command
}
