//! What a program that was sent to a host does for itself: it says whether it is intact, notes that
//! it is used, and removes those of its folder that are not.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::install::is_sent_name;
use super::launch::own_program;
use crate::wire::message::{VERSION_MAX, VERSION_MIN};

/// Answers what a far program is asked before it is started, with `fits` or why it does not;
/// returns the exit code, or `None` where these words start it. `parts` are the words that start
/// something in this program.
pub fn asked(words: &[String], parts: &[&str]) -> Option<u8> {
    let (first, questions) = words.split_first()?;
    let asks = |word: &String| {
        ["--speaks=", "--is=", "--installed="].iter().any(|begin| word.starts_with(begin))
    };
    if !parts.contains(&first.as_str()) || !questions.iter().any(asks) {
        return None;
    }
    let answer = questions.iter().try_for_each(|question| answer(question));
    let (code, word) = match answer {
        Ok(()) => (0, "fits".to_string()),
        Err(why) => (UNFIT, why),
    };
    let _ = writeln!(io::stdout(), "{word}");
    Some(code)
}

/// The exit code of a program that is not the one that is wanted.
const UNFIT: u8 = 98;

fn answer(question: &str) -> Result<(), String> {
    let (name, value) = question.split_once('=').unwrap_or((question, ""));
    match name {
        "--speaks" => match speaks(value) {
            true => Ok(()),
            false => Err(format!("it speaks versions {VERSION_MIN} to {VERSION_MAX}")),
        },
        "--is" if value == env!("CARGO_PKG_VERSION") => Ok(()),
        "--is" => Err(format!("it is version {}", env!("CARGO_PKG_VERSION"))),
        "--installed" => is_intact(value),
        _ => Err(format!("it does not know {name}")),
    }
}

/// True where this program shares a version of the protocol with one that speaks these.
fn speaks(range: &str) -> bool {
    let versions = range.split_once('-').map(|(min, max)| (min.parse::<u16>(), max.parse::<u16>()));
    matches!(versions, Some((Ok(min), Ok(max)))
        if min.max(VERSION_MIN) <= max.min(VERSION_MAX))
}

fn is_intact(digest: &str) -> Result<(), String> {
    let own = own_program().map_err(|fault| fault.to_string())?;
    let found = File::open(&own).and_then(digest_of).map_err(|why| why.to_string())?;
    if found != digest {
        return Err("what arrived is damaged".to_string());
    }
    // A folder that cannot be written any more still serves.
    let _ = touch(&own).and_then(|()| clean(&own));
    Ok(())
}

/// The digest of a program, in hexadecimal digits.
pub(super) fn digest_of(mut file: File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            count => drop(hasher.update(&buffer[..count])),
        }
    }
}

/// The name under which a program is kept: its version, and the beginning of its digest.
pub(super) fn file_name(stem: &str, digest: &str) -> String {
    format!("{stem}-{}-{}", env!("CARGO_PKG_VERSION"), &digest[..NAME_DIGITS])
}

pub(super) const NAME_DIGITS: usize = 16;

/// A program's own time of change says when it was last used: few systems keep that of access.
fn touch(file: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, file, &times, AtFlags::empty())?)
}

/// Removes programs beside this one that nobody uses: all but the two newest and what was used in
/// 30 days; and what was left by uploads that were broken off a day ago.
fn clean(own: &Path) -> io::Result<()> {
    let folder = own.parent().unwrap_or(Path::new("/"));
    let now = fs::metadata(own)?.modified()?; // by the clock that stamps the others
    let user = rustix::process::geteuid().as_raw();
    let (mut programs, mut uploads) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(data) = entry.metadata() else { continue };
        if !data.is_file() || data.uid() != user {
            continue; // nothing of this program's
        }
        let Ok(used) = data.modified() else { continue };
        let name = entry.file_name();
        if is_sent_name(&name) {
            programs.push((used, entry.path()));
        } else if is_upload_name(&name) {
            uploads.push((used, entry.path()));
        }
    }
    for file in unused(programs, now, KEPT, UNUSED_FOR).into_iter().chain(unused(
        uploads,
        now,
        0,
        BROKEN_OFF_FOR,
    )) {
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// The name of a program that is being sent: as in `bootstrap.sh`, with a token of eight digits.
fn is_upload_name(name: &OsStr) -> bool {
    let token = name.to_str().and_then(|name| name.strip_prefix(".new-"));
    token.is_some_and(|token| {
        token.len() == 8 && token.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// What was not used for so long, but for the newest.
fn unused(
    mut files: Vec<(SystemTime, PathBuf)>,
    now: SystemTime,
    kept: usize,
    unused_for: Duration,
) -> Vec<PathBuf> {
    files.sort_by(|(a, _), (b, _)| b.cmp(a));
    let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|age| age > unused_for);
    let old = files.into_iter().skip(kept).filter(|(used, _)| is_old(*used));
    old.map(|(_, file)| file).collect()
}

const KEPT: usize = 2;
const UNUSED_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
const BROKEN_OFF_FOR: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn a_program_says_whether_it_fits() {
        let own = digest_of(File::open(own_program().unwrap()).unwrap()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let cases = [
            ("peer".to_string(), None),
            ("peer --cpus=0-1".to_string(), None),
            ("copy --speaks=1-2".to_string(), None),
            ("probe --is=0.1.0".to_string(), None),
            (format!("peer --speaks={VERSION_MIN}-{VERSION_MAX}"), Some(0)),
            (format!("peer --speaks=1-{VERSION_MIN}"), Some(0)),
            (format!("peer --speaks={}-99", VERSION_MAX + 1), Some(UNFIT)),
            ("peer --speaks=1-2".to_string(), Some(UNFIT)),
            ("peer --speaks=all".to_string(), Some(UNFIT)),
            (format!("peer --is={version}"), Some(0)),
            ("peer --is=0".to_string(), Some(UNFIT)),
            (format!("peer --installed={own} --is={version}"), Some(0)),
            (format!("peer --is={version} --installed=00"), Some(UNFIT)),
            (format!("peer --is={version} --root=/"), Some(UNFIT)),
        ];
        for (line, expect) in cases {
            assert_eq!(asked(&words(&line), &["peer"]), expect, "{line}");
        }
    }

    /// Days since each was used, the newest first or not; those that go.
    #[test]
    fn what_is_not_used_goes_but_for_the_newest() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let cases: [(&[u64], &[u64]); 6] = [
            (&[], &[]),
            (&[90], &[]),
            (&[90, 80], &[]),
            (&[0, 1, 2, 29], &[]),
            (&[31, 0, 40, 2], &[31, 40]),
            (&[50, 70, 60], &[70]),
        ];
        for (days, gone) in cases {
            let used = |days: u64| now - Duration::from_secs(days * 24 * 3600);
            let files = days.iter().map(|day| (used(*day), PathBuf::from(day.to_string())));
            let found = unused(files.collect(), now, KEPT, UNUSED_FOR);
            let gone: Vec<_> = gone.iter().map(|day| PathBuf::from(day.to_string())).collect();
            assert_eq!(found, gone, "{days:?}");
        }
    }

    #[test]
    fn only_what_was_sent_is_removed() {
        let name = |name: &str| is_sent_name(name.as_ref());
        assert!(name(&file_name("datapump-peer", &"0123456789abcdef".repeat(4))));
        assert!(name(&file_name("datapump", &"f".repeat(64))));
        assert!(name("datapump-peer-0.0.9-rc.1-0123456789abcdef"));
        for other in
            ["datapump", "datapump-peer", "datapump-peer-x86_64", "notes-1.0-0123456789abcdef"]
        {
            assert!(!name(other), "{other}");
        }
        assert!(is_upload_name(".new-0123abcd".as_ref()));
        for other in [".new-config", ".new-notes.txt", ".new-0123abcde", ".new-", "new-0123abcd"] {
            assert!(!is_upload_name(other.as_ref()), "{other}");
        }
    }
}
