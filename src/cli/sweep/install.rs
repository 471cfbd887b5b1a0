//! `sweep install`: units of systemd that measure a campaign regularly.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::regular::without;
use crate::cli::options::sweeping;
use crate::cli::results::into_file;
use base::fault::Fault;
use base::units::Nanos;

/// What is installed.
#[derive(Debug)]
pub(crate) struct InstallArgs {
    pub every: Nanos,
    /// The folder of the units.
    pub units: Option<PathBuf>,
    pub hosts: PathBuf,
}

/// Writes both units, and returns their paths.
pub(super) fn write(args: &InstallArgs) -> Result<Vec<PathBuf>, Fault> {
    let folder = match &args.units {
        Some(folder) => folder.clone(),
        None => usual_folder()?,
    };
    let program = std::env::current_exe()
        .map_err(|why| Fault::system("find the program that is running", &why))?;
    let here = std::env::current_dir()
        .map_err(|why| Fault::system("find the folder that this was typed in", &why))?;
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    fs::create_dir_all(&folder).map_err(|why| Fault::io("make", &folder, &why))?;
    let name = unit_name(&args.hosts);
    let units = [
        (format!("{name}.service"), service(&args.hosts, &program, &here, &words)),
        (format!("{name}.timer"), timer(&args.hosts, args.every)),
    ];
    let mut written = Vec::new();
    for (file, text) in units {
        let path = folder.join(file);
        into_file(&path, &mut |out| out.write_all(text.as_bytes()))?;
        written.push(path);
    }
    Ok(written)
}

/// What makes systemd begin, for people.
pub(super) fn next_step(timer: &Path) -> String {
    let name = timer.file_name().unwrap_or_default().to_string_lossy();
    let user = if is_root() { "" } else { " --user" };
    format!("begin with: systemctl{user} daemon-reload && systemctl{user} enable --now {name}")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn usual_folder() -> Result<PathBuf, Fault> {
    if is_root() {
        return Ok(PathBuf::from("/etc/systemd/system"));
    }
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = named("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let config = config.or_else(|| named("HOME").map(|home| home.join(".config")));
    config.map(|config| config.join("systemd/user")).ok_or_else(|| {
        Fault::usage("there is no place for units, since HOME is not set: name one with --units")
    })
}

/// `datapump-sweep-HOSTS`, of the letters that units may have.
fn unit_name(hosts: &Path) -> String {
    let stem = hosts.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("datapump-sweep-{}", stem.chars().map(plain).collect::<String>())
}

fn service(hosts: &Path, program: &Path, here: &Path, words: &[OsString]) -> String {
    let mut is_first = true;
    let mut rest = without(words.iter().cloned(), &[sweeping::EVERY.name, sweeping::UNITS.name]);
    rest.retain(|word| {
        let is_word = is_first && word == INSTALL;
        is_first &= !is_word;
        !is_word
    });
    let all = std::iter::once(program.as_os_str()).chain(rest.iter().map(OsString::as_os_str));
    let line: Vec<String> = all.map(|word| quoted(word.as_bytes())).collect();
    format!(
        "# Written by 'datapump sweep install'.\n\
         [Unit]\n\
         Description=datapump campaign over the hosts in {}\n\
         Documentation=man:datapump(1)\n\
         Wants=network-online.target\n\
         After=network-online.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         WorkingDirectory={}\n\
         ExecStart={}\n\
         Environment=DATAPUMP_REGULAR=1\n\
         KillSignal=SIGINT\n\
         NoNewPrivileges=yes\n",
        specifiers(&plain_text(hosts)),
        specifiers(&here.display().to_string()),
        line.join(" ")
    )
}

fn timer(hosts: &Path, every: Nanos) -> String {
    let seconds = every.0 / 1_000_000_000;
    let hours = seconds / 3600;
    // Times of the day, where they are the same each day: then a missed one is made up for.
    let when = match seconds.is_multiple_of(3600) && 24_u64.is_multiple_of(hours) {
        true if hours == 24 => "OnCalendar=*-*-* 00:00:00\nPersistent=true\n".to_string(),
        true => format!("OnCalendar=*-*-* 00/{hours}:00:00\nPersistent=true\n"),
        false => format!("OnBootSec=5min\nOnUnitActiveSec={seconds}s\n"),
    };
    format!(
        "# Written by 'datapump sweep install'.\n\
         [Unit]\n\
         Description=Timer of the datapump campaign over the hosts in {}\n\n\
         [Timer]\n\
         {when}\
         RandomizedDelaySec=60\n\n\
         [Install]\n\
         WantedBy=timers.target\n",
        specifiers(&plain_text(hosts))
    )
}

fn plain_text(path: &Path) -> String {
    analysis::report::escape::line(&path.display().to_string())
}

/// systemd replaces what follows a `%`.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// A word as systemd reads it in a command line: in quotes, with C's escapes, and without its
/// replacement of variables and specifiers.
fn quoted(word: &[u8]) -> String {
    let byte = |byte: &u8| match byte {
        b'"' => "\\\"".to_string(),
        b'\\' => "\\\\".to_string(),
        b'%' => "%%".to_string(),
        b'$' => "$$".to_string(),
        b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    let text: String = word.iter().map(byte).collect();
    match word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+=:,@".contains(byte)) {
        true if !word.is_empty() => text,
        _ => format!("\"{text}\""),
    }
}

/// The word behind `sweep`.
pub(super) const INSTALL: &str = "install";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let words = [
            "sweep",
            "install",
            "--hosts",
            "my hosts.txt",
            "--every",
            "6h",
            "--units=/tmp/u",
            "--alarm",
            "echo \"$DATAPUMP_ALARM\" 100%\\",
            "-t",
            "install",
        ];
        let words: Vec<OsString> = words.map(OsString::from).into();
        let hosts = Path::new("my hosts.txt");
        let text = service(hosts, Path::new("/usr/bin/datapump"), Path::new("/srv/a%b"), &words);
        insta::assert_snapshot!("sweep-service", text);
        let six = Nanos::from_millis(6 * 3_600_000);
        insta::assert_snapshot!("sweep-timer", timer(hosts, six));
        assert_eq!(unit_name(hosts), "datapump-sweep-my-hosts");
    }

    #[test]
    fn when_a_timer_fires() {
        let cases = [
            (3600, "OnCalendar=*-*-* 00/1:00:00"),
            (86_400, "OnCalendar=*-*-* 00:00:00"),
            (5 * 3600, "OnUnitActiveSec=18000s"),
            (90, "OnUnitActiveSec=90s"),
            (48 * 3600, "OnUnitActiveSec=172800s"),
        ];
        for (seconds, expect) in cases {
            let text = timer(Path::new("h"), Nanos(seconds * 1_000_000_000));
            assert!(text.contains(expect), "{seconds}: {text}");
        }
    }
}
