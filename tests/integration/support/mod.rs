//! Shared by the end-to-end tests: folders, data, runs of the real program, and a real sshd.

pub(crate) mod browser;
pub(crate) mod capture;
pub(crate) mod cells;
pub(crate) mod data;
pub(crate) mod far;
pub(crate) mod far_spreads;
pub(crate) mod file_systems;
pub(crate) mod gateway;
pub(crate) mod liar;
pub(crate) mod mount;
pub(crate) mod old_kernel;
pub(crate) mod packets;
pub(crate) mod pairs;
pub(crate) mod processes;
pub(crate) mod recorded;
pub(crate) mod relay;
pub(crate) mod run;
pub(crate) mod scripted_store;
pub(crate) mod small_store;
pub(crate) mod speaker;
pub(crate) mod swapper;
pub(crate) mod torture;
pub(crate) mod wan;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use run::Ran;

/// One test's own folder, and its own name for the far side's program, which identifies its
/// processes.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    /// The program here finds no call that is newer than Linux 4.18.
    has_old_kernel: bool,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let folder = tempfile::Builder::new().prefix("datapump-test-").tempdir().unwrap();
        // Some tests run as other users.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let scene = Scene { folder, has_old_kernel: false };
        std::os::unix::fs::symlink(PROGRAM, scene.far_program()).unwrap();
        scene
    }

    /// One whose kernel has the calls of Linux 4.18: it cannot resolve paths beneath a folder
    /// (`openat2`), and has no `io_uring`.
    pub(crate) fn with_old_kernel() -> Scene {
        Scene { has_old_kernel: true, ..Scene::new() }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The far side's program under a name that no other test has.
    pub(crate) fn far_program(&self) -> PathBuf {
        self.path("far-datapump")
    }

    /// Replaces the far side's program by a shell script; `$PROGRAM` in it is the real one.
    pub(crate) fn far_script(&self, lines: &str) {
        fs::remove_file(self.far_program()).unwrap();
        self.script("far-datapump", lines);
    }

    /// A shell script in this folder.
    pub(crate) fn script(&self, name: &str, lines: &str) -> PathBuf {
        // Another process writes it: a child of another test could inherit our descriptor, and then
        // the script could not be run.
        let path = self.path(name);
        let text = format!("#!/bin/sh\nPROGRAM={PROGRAM}\n{lines}\n");
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(&path);
        let written = run::to_end(writer, text.as_bytes());
        assert_eq!(written.code, 0, "{written}");
        path
    }

    /// The program as another user can run it. Another process copies it: a child of another test
    /// could inherit our descriptor open for writing, and then the program could not be run.
    pub(crate) fn program_for_all(&self) -> PathBuf {
        let copy = self.path("datapump");
        if !copy.exists() {
            let copied = Command::new(need("cp", "coreutils")).arg(PROGRAM).arg(&copy).status();
            assert!(copied.unwrap().success(), "cp {PROGRAM} {}", copy.display());
        }
        copy
    }

    /// A command line split at blanks: `@/` in front of a path is this folder.
    pub(crate) fn words(&self, line: &str) -> Vec<OsString> {
        let folder = self.folder.path().to_str().expect("the temporary folder has a plain name");
        let spelled = |word: &str| match word.strip_prefix("@/") {
            Some(name) => format!("{folder}/{name}"),
            None => word.replace(":@/", &format!(":{folder}/")),
        };
        line.split_whitespace().map(|word| spelled(word).into()).collect()
    }

    /// The real program with these arguments; anything that is far goes through the real sshd.
    pub(crate) fn command(&self, args: &[OsString]) -> Command {
        let mut command = self.here(Path::new(PROGRAM));
        command.args(args);
        if args.iter().any(|arg| arg.to_string_lossy().starts_with("far:")) {
            if !args.contains(&"--ssh".into()) {
                command.arg("--ssh").arg(far::ssh_command());
            }
            if !args.contains(&"--remote-datapump".into()) {
                command.arg("--remote-datapump").arg(self.far_program());
            }
        }
        command
    }

    /// The program on this host, with the calls of its kernel or those of an old one.
    pub(crate) fn here(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.has_old_kernel {
            old_kernel::without_newer_calls(&mut command);
        }
        command
    }

    /// Runs a command line as `words` reads it.
    pub(crate) fn run(&self, line: &str) -> Ran {
        run::to_end(self.command(&self.words(line)), b"")
    }

    /// The same for a command that must succeed.
    pub(crate) fn succeed(&self, line: &str) -> Ran {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        ran
    }

    /// Processes of this scene's far side, and the ssh that leads to it.
    pub(crate) fn far_processes(&self) -> Vec<i32> {
        processes::that_name(&self.far_program())
    }

    /// Fails if a folder holds anything else than these, such as a temporary file.
    pub(crate) fn assert_holds(&self, folder: &str, names: &[&str]) {
        let files = self.held(folder);
        assert_eq!(files, names, "in {}", self.path(folder).display());
    }

    /// The same for a run that can be resumed: its partial files may be there too.
    pub(crate) fn assert_arrived(&self, folder: &str, names: &[&str]) {
        let mut files = self.held(folder);
        files.retain(|file| !file.rsplit('/').next().unwrap_or(file).starts_with(".datapump-"));
        assert_eq!(files, names, "in {}", self.path(folder).display());
    }

    fn held(&self, folder: &str) -> Vec<String> {
        let folder = self.path(folder);
        let inner = |path: &PathBuf| path.strip_prefix(&folder).unwrap().display().to_string();
        data::files_below(&folder).iter().map(inner).collect()
    }
}

/// Runs every case of a table, even after a failure, and names all that fail.
pub(crate) fn each<C: fmt::Debug>(cases: impl IntoIterator<Item = C>, check: impl Fn(&C)) {
    let failed: Vec<String> = cases
        .into_iter()
        .filter(|case| panic::catch_unwind(AssertUnwindSafe(|| check(case))).is_err())
        .map(|case| format!("{case:?}"))
        .collect();
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

/// The same for cases that mostly wait: several run at once.
pub(crate) fn each_at_once<C: fmt::Debug + Sync>(cases: &[C], check: impl Fn(&C) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
                    if panic::catch_unwind(AssertUnwindSafe(|| check(case))).is_err() {
                        failed.lock().unwrap().push(format!("{case:?}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), failed.join("\n"));
}

const AT_ONCE: usize = 4;

/// Panics with the name of a program that is not installed: a test that skips proves nothing.
pub(crate) fn need(program: &str, package: &str) -> PathBuf {
    let found = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is missing: install the Debian package {package}"))
}

/// Longer than anything here takes on a busy machine: only a hang lasts so long. This says nothing
/// about speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds, with a guard against hanging.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(what, || is_so().then_some(()));
}

/// The same; returns what was found.
pub(crate) fn until_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Panics if the test cannot run on this machine.
pub(crate) fn need_root(why: &str) {
    assert!(is_root(), "this test needs root: {why}");
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_datapump");
