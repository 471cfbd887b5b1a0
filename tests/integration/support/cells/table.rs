//! The kinds of far hosts.

use super::{Cell, Expect};

const SENT: Expect = Expect::Works { sent: 1, says: &["there is no datapump at cell: sending"] };
const NOT_SENT: Expect = Expect::Works { sent: 0, says: &[] };
const IN_PATH: &str = "environment=\"PATH=/mnt/bin:/usr/bin:/bin\"";

/// All cells; the tests try some of them, `cargo xtask install-matrix` all.
pub(crate) const CELLS: &[Cell] = &[
    Cell::BARE,
    Cell { name: "login shell sh", shell: "/bin/sh", ..Cell::BARE },
    Cell { name: "login shell zsh", shell: "/usr/bin/zsh", ..Cell::BARE },
    Cell { name: "login shell fish", shell: "/usr/bin/fish", ..Cell::BARE },
    Cell { name: "login shell tcsh", shell: "/usr/bin/tcsh", ..Cell::BARE },
    Cell { name: "login shell mksh", shell: "/bin/mksh", ..Cell::BARE },
    Cell { name: "login shell ksh93", shell: "/bin/ksh93", ..Cell::BARE },
    Cell {
        name: "busybox as /bin/sh",
        shell: "/bin/sh",
        mounts: "mount --bind /bin/busybox $(readlink -f /bin/sh)",
        ..Cell::BARE
    },
    Cell {
        name: "bash as /bin/sh",
        mounts: "mount --bind /bin/bash $(readlink -f /bin/sh)",
        ..Cell::BARE
    },
    Cell {
        name: "bash with a noisy rc file",
        files: &[(".bashrc", "for i in $(seq 300); do echo \"Welcome $i\"; done; echo note >&2\n")],
        expect: Expect::Works { sent: 1, says: &["note", "there is no datapump at cell: sending"] },
        ..Cell::BARE
    },
    Cell {
        name: "zsh with a noisy rc file",
        shell: "/usr/bin/zsh",
        files: &[(".zshenv", "echo Welcome; printf 'no end of line'\n")],
        ..Cell::BARE
    },
    Cell {
        name: "fish with a noisy rc file",
        shell: "/usr/bin/fish",
        files: &[(".config/fish/config.fish", "echo Welcome\n")],
        ..Cell::BARE
    },
    Cell {
        name: "tcsh with a noisy rc file",
        shell: "/usr/bin/tcsh",
        files: &[(".tcshrc", "echo Welcome\n")],
        ..Cell::BARE
    },
    Cell {
        name: "an rc file that reads a line",
        files: &[(".bashrc", "read -r line\n")],
        ..Cell::BARE
    },
    Cell {
        name: "an rc file with umask 000 and aliases",
        files: &[(".bashrc", "umask 000\nalias mv='mv -i' rm='rm -i' cat=false\n")],
        ..Cell::BARE
    },
    Cell {
        name: "a banner",
        config: "Banner /mnt/banner",
        expect: Expect::Works { sent: 1, says: &["Everything is logged.", ": sending "] },
        ..Cell::BARE
    },
    Cell {
        name: "noexec home",
        mounts: "mounted /mnt/home noexec",
        expect: Expect::Works {
            sent: 1,
            says: &["/mnt/home/.cache/datapump: no program runs from there", "/var/tmp/datapump-"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "noexec home, with XDG_RUNTIME_DIR",
        mounts: "mounted /mnt/home noexec; mkdir /mnt/run; chown 70001 /mnt/run",
        key: "environment=\"XDG_RUNTIME_DIR=/mnt/run\"",
        expect: Expect::Works { sent: 1, says: &["to /mnt/run/datapump"] },
        ..Cell::BARE
    },
    Cell {
        name: "read-only home",
        mounts: "mount --bind /mnt/home /mnt/home; mount -o remount,ro,bind /mnt/home",
        expect: Expect::Works {
            sent: 1,
            says: &["/mnt/home/.cache/datapump: Read-only file system", "/var/tmp/datapump-"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "full home",
        mounts: "mounted /mnt/home size=300k",
        // It has room for a small file: that it is full is known when the program does not fit.
        expect: Expect::Works {
            sent: 2,
            says: &["/mnt/home/.cache/datapump: No space left on device", "/var/tmp/datapump-"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "no home at all",
        mounts: "rmdir /mnt/home",
        expect: Expect::Works { sent: 1, says: &["/var/tmp/datapump-"] },
        ..Cell::BARE
    },
    Cell {
        name: "DATAPUMP_DIR",
        key: "environment=\"DATAPUMP_DIR=/mnt/out/here and there\"",
        expect: Expect::Works { sent: 1, says: &["to /mnt/out/here and there"] },
        ..Cell::BARE
    },
    Cell {
        name: "a link and a stranger's folder in the way",
        mounts: "mounted /mnt/home ro; mkdir /tmp/stranger /tmp/datapump-70001; \
                 ln -s /tmp/stranger /var/tmp/datapump-70001",
        expect: Expect::Fails {
            code: 8,
            says: &[
                "/var/tmp/datapump-70001: it is a symbolic link",
                "/tmp/datapump-70001: others own it, or can write to it",
                "set DATAPUMP_DIR there",
            ],
        },
        ..Cell::BARE
    },
    Cell {
        name: "no folder from which programs run",
        mounts: "mounted /mnt/home noexec; mount -o remount,noexec /tmp; \
                 mount -o remount,noexec /var/tmp",
        expect: Expect::Fails {
            code: 8,
            says: &[
                "there is no datapump at cell, and it has no folder for one",
                "/mnt/home/.cache/datapump: no program runs from there (mounted noexec?)",
                "/tmp/datapump-70001: no program runs from there",
                "set DATAPUMP_DIR there",
            ],
        },
        ..Cell::BARE
    },
    Cell {
        name: "a datapump that fits",
        mounts: "ln -s /mnt/own /mnt/bin/datapump",
        key: IN_PATH,
        expect: NOT_SENT,
        ..Cell::BARE
    },
    Cell {
        name: "a datapump that fits, and --install always",
        mounts: "ln -s /mnt/own /mnt/bin/datapump",
        key: IN_PATH,
        options: "--install always",
        expect: SENT,
        ..Cell::BARE
    },
    Cell {
        name: "an old datapump",
        // One that was built before this was asked takes the question for a wrong option.
        mounts: "printf '#!/bin/sh\\necho error: unexpected argument >&2\\nexit 2\\n' \
                 > /mnt/bin/datapump; chmod 755 /mnt/bin/datapump",
        key: IN_PATH,
        expect: Expect::Works {
            sent: 1,
            says: &["there is no datapump that fits this one at cell: sending"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "a datapump that does not run",
        mounts: "printf '#!/nowhere/loader\\n' > /mnt/bin/datapump; chmod 755 /mnt/bin/datapump",
        key: IN_PATH,
        expect: Expect::Works {
            sent: 1,
            says: &["there is no datapump that fits this one at cell: sending"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "neither gzip nor zstd",
        mounts: "for tool in gzip zstd; do [ ! -e /usr/bin/$tool ] || \
                 mount --bind /etc/hostname /usr/bin/$tool; done",
        ..Cell::BARE
    },
    Cell {
        name: "another processor",
        mounts: "printf '#!/bin/sh\\necho Linux aarch64\\n' > /mnt/bin/uname; \
                 chmod 755 /mnt/bin/uname",
        key: IN_PATH,
        expect: Expect::Fails {
            code: 8,
            says: &[
                "there is no datapump at cell, whose processor is aarch64",
                "put datapump-peer-aarch64 of the same release beside this program",
            ],
        },
        ..Cell::BARE
    },
    Cell {
        name: "another system",
        mounts: "printf '#!/bin/sh\\necho Darwin arm64\\n' > /mnt/bin/uname; \
                 chmod 755 /mnt/bin/uname",
        key: IN_PATH,
        expect: Expect::Fails {
            code: 8,
            says: &["there is no datapump at cell, which runs Darwin arm64: it needs Linux"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "--install never",
        options: "--install never",
        expect: Expect::Fails {
            code: 8,
            says: &["there is no datapump at cell", "--install auto"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "--install never, with a datapump",
        mounts: "ln -s /mnt/own /mnt/bin/datapump",
        key: IN_PATH,
        options: "--install never",
        expect: NOT_SENT,
        ..Cell::BARE
    },
    Cell {
        name: "--remote-datapump",
        options: "--remote-datapump /mnt/own",
        expect: NOT_SENT,
        ..Cell::BARE
    },
    Cell {
        name: "a forced command",
        key: "command=\"echo 'only backups here'\"",
        expect: Expect::Fails { code: 8, says: &["only backups here", "a forced command"] },
        ..Cell::BARE
    },
    Cell {
        name: "a forced command that fails",
        key: "command=\"echo 'not allowed' >&2; exit 3\"",
        expect: Expect::Fails {
            code: 8,
            says: &["did not run /bin/sh for this login (exit code 3): not allowed"],
        },
        ..Cell::BARE
    },
    Cell {
        name: "a forced command that starts a datapump",
        key: "command=\"/mnt/own peer\"",
        expect: NOT_SENT,
        ..Cell::BARE
    },
    Cell {
        name: "sftp alone",
        config: "ForceCommand internal-sftp",
        expect: Expect::Fails { code: 8, says: &["sftp connections only", "a forced command"] },
        ..Cell::BARE
    },
    Cell {
        name: "a restricted shell",
        shell: "/bin/rbash",
        expect: Expect::Fails { code: 8, says: &["restricted"] },
        ..Cell::BARE
    },
    Cell {
        name: "no shell",
        shell: "/usr/sbin/nologin",
        expect: Expect::Fails { code: 8, says: &["This account is currently not available"] },
        ..Cell::BARE
    },
    Cell { name: "behind a ProxyJump", ..Cell::BARE },
];
