//! Real file systems of every kind that people copy to, each mounted at a folder of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::gateway::{self, Gateway};
use super::mount::Mount;
use super::{Scene, need};

/// How a file system is made and mounted. Words with `@` name what belongs to the test: `@image` a
/// file of that name, `@back` a folder on the disk of the test, `@at` where it is mounted,
/// `@server` a program that speaks SFTP, whatever it is started with, `@store` the address of an
/// object store, whose credentials are in the environment.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub name: &'static str,
    /// The length of the image, in MiB, or 0 where there is none.
    image_mib: u64,
    /// Program and package.
    needs: &'static [(&'static str, &'static str)],
    /// Commands, the last of which mounts.
    commands: &'static [&'static str],
}

impl Recipe {
    /// True where it runs outside the kernel: some kernels, and most containers, have no door for
    /// that.
    pub(crate) fn needs_fuse(&self) -> bool {
        self.needs.iter().any(|(_, package)| OF_KERNEL.iter().all(|own| own != package))
    }

    pub(crate) fn mount(&self, scene: &Scene) -> Mounted {
        let store = self.needs_store().then(Gateway::new);
        let mount = self.mount_of(scene, store.as_ref());
        let at = mount.at.clone();
        let below = Mount::found(scene.path(format!("{}.back", self.name)));
        Mounted { at, _mount: mount, _below: below, _store: store }
    }

    fn needs_store(&self) -> bool {
        self.commands.iter().any(|command| command.contains("@store"))
    }

    /// Of a store that the test has.
    pub(crate) fn mount_of(&self, scene: &Scene, store: Option<&Gateway>) -> Mount {
        let name = |what: &str| scene.path(format!("{}.{what}", self.name));
        let (image, back, at) = (name("image"), name("back"), name("at"));
        let server = scene.script("sftp", "exec /usr/lib/openssh/sftp-server");
        fs::create_dir_all(&back).unwrap();
        fs::create_dir_all(&at).unwrap();
        if self.image_mib > 0 {
            fs::File::create(&image).unwrap().set_len(self.image_mib << 20).unwrap();
        }
        self.needs.iter().for_each(|(program, package)| drop(need(program, package)));
        let store = store.map(|store| format!("http://127.0.0.1:{}", store.port));
        let shown = |path: &Path| path.to_str().unwrap().to_string();
        let spelled = [
            ("@image", shown(&image)),
            ("@back", shown(&back)),
            ("@at", shown(&at)),
            ("@server", shown(&server)),
            ("@store", store.unwrap_or_default()),
        ];
        for command in self.commands {
            let words = command.split_whitespace().map(|word| {
                spelled
                    .iter()
                    .fold(word.to_string(), |word, (mark, meant)| word.replace(mark, meant))
            });
            let words: Vec<String> = words.collect();
            let program = match &words[0][..] {
                "@rclone" => gateway::tool("moto/bin/rclone"),
                name => name.into(),
            };
            let mut ran = Command::new(program);
            gateway::with_credentials(&mut ran).env("RCLONE_CONFIG", "/dev/null");
            let output = ran.args(&words[1..]).output();
            let output = output.unwrap_or_else(|why| panic!("{command}: {why}"));
            assert!(output.status.success(), "{command}: {output:?}");
        }
        Mount::by_another(at)
    }
}

/// A file system that a test has for itself, and what it is kept in.
pub(crate) struct Mounted {
    pub at: PathBuf,
    // Dropped in this order.
    _mount: Mount,
    _below: Option<Mount>,
    _store: Option<Gateway>,
}

const OF_KERNEL: &[&str] = &["mount", "e2fsprogs", "xfsprogs", "btrfs-progs"];

/// All of them. What each keeps is said by who tries them.
pub(crate) const ALL: &[Recipe] = &[
    Recipe {
        name: "ext4",
        image_mib: 64,
        needs: &[("mkfs.ext4", "e2fsprogs")],
        commands: &["mkfs.ext4 -q @image", "mount -o loop @image @at"],
    },
    Recipe {
        name: "xfs",
        image_mib: 320,
        needs: &[("mkfs.xfs", "xfsprogs")],
        commands: &["mkfs.xfs -q @image", "mount -o loop @image @at"],
    },
    Recipe {
        name: "btrfs",
        image_mib: 160,
        needs: &[("mkfs.btrfs", "btrfs-progs")],
        commands: &["mkfs.btrfs -q @image", "mount -o loop @image @at"],
    },
    Recipe {
        name: "tmpfs",
        image_mib: 0,
        needs: &[("mount", "mount")],
        commands: &["mount -t tmpfs -o size=64m tmpfs @at"],
    },
    Recipe {
        name: "overlay",
        image_mib: 0,
        needs: &[("mount", "mount")],
        // What lies above may not be on another overlay.
        commands: &[
            "mount -t tmpfs -o size=64m tmpfs @back",
            "mkdir @back/lower @back/upper @back/work",
            "mount -t overlay -o lowerdir=@back/lower,upperdir=@back/upper,workdir=@back/work none \
             @at",
        ],
    },
    Recipe {
        name: "exfat",
        image_mib: 64,
        needs: &[("mkfs.exfat", "exfatprogs"), ("mount.exfat-fuse", "exfat-fuse")],
        commands: &["mkfs.exfat @image", "mount -o loop -t exfat-fuse @image @at"],
    },
    Recipe {
        name: "fat",
        image_mib: 64,
        needs: &[("mkfs.vfat", "dosfstools"), ("fusefat", "fusefat")],
        // It ends by itself when several threads of it write at once.
        commands: &["mkfs.vfat @image", "fusefat -s -o rw+ @image @at"],
    },
    Recipe {
        name: "ntfs",
        image_mib: 64,
        needs: &[("mkfs.ntfs", "ntfs-3g")],
        commands: &["mkfs.ntfs -F -q @image", "ntfs-3g @image @at"],
    },
    Recipe {
        name: "ntfs-without-case",
        image_mib: 64,
        needs: &[("mkfs.ntfs", "ntfs-3g")],
        commands: &["mkfs.ntfs -F -q @image", "lowntfs-3g -o ignore_case @image @at"],
    },
    Recipe {
        name: "sshfs",
        image_mib: 0,
        needs: &[("sshfs", "sshfs"), ("/usr/lib/openssh/sftp-server", "openssh-sftp-server")],
        commands: &["sshfs -o ssh_command=@server host:@back @at"],
    },
    Recipe {
        name: "without-chmod",
        image_mib: 0,
        needs: &[("bindfs", "bindfs")],
        commands: &["bindfs --chmod-deny @back @at"],
    },
    Recipe {
        name: "all-of-nobody",
        image_mib: 0,
        needs: &[("bindfs", "bindfs")],
        commands: &["bindfs --create-for-user=nobody @back @at"],
    },
    Recipe {
        name: "all-of-all",
        image_mib: 0,
        needs: &[("bindfs", "bindfs")],
        commands: &["bindfs --perms=0777 @back @at"],
    },
    Recipe {
        name: "unionfs",
        image_mib: 0,
        needs: &[("unionfs", "unionfs-fuse")],
        commands: &["unionfs -o cow @back=RW @at"],
    },
    Recipe {
        name: "mergerfs",
        image_mib: 0,
        needs: &[("mergerfs", "mergerfs")],
        commands: &["mergerfs @back @at"],
    },
    Recipe {
        name: "s3fs",
        image_mib: 0,
        needs: &[("s3fs", "s3fs")],
        commands: &["s3fs bucket @at -o url=@store,use_path_request_style"],
    },
    Recipe {
        name: "rclone-mount",
        image_mib: 0,
        needs: &[("fusermount3", "fuse3")],
        commands: &[
            "@rclone mount --daemon :s3,provider=Other,env_auth=true,endpoint='@store':bucket @at",
        ],
    },
    Recipe {
        name: "rclone-mount-with-cache",
        image_mib: 0,
        needs: &[("fusermount3", "fuse3")],
        commands: &["@rclone mount --daemon --vfs-cache-mode writes --cache-dir @back \
             :s3,provider=Other,env_auth=true,endpoint='@store':bucket @at"],
    },
];
