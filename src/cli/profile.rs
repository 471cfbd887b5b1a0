//! Options of `copy` that are kept under a name: one a line, as `streams 8`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::args::Options;
use super::command::Verb;
use super::knobs;

/// Sets what a profile says. What is typed beside it comes later, and counts.
pub fn apply(name: &OsStr, verb: Verb, options: &mut Options) -> Result<(), String> {
    let text_of = |why: String| format!("--profile '{}': {why}", name.to_string_lossy());
    let path = path_of(&name.to_string_lossy()).map_err(text_of)?;
    let text = fs::read_to_string(&path).map_err(|why| {
        let shown = path.display();
        text_of(format!("cannot read '{shown}': {why}; 'datapump sweep profile' writes it"))
    })?;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            set(line, verb, options)
                .map_err(|why| text_of(format!("line {number} of '{}': {why}", path.display())))?;
        }
    }
    Ok(())
}

fn set(line: &str, verb: Verb, options: &mut Options) -> Result<(), String> {
    let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let known = knobs::all().find(|knob| knob.name == name && knob.verbs.contains(&verb));
    let knob = known.filter(|knob| knob.name != PROFILE);
    let knob = knob.ok_or_else(|| format!("{} has no option --{name}", verb.name()))?;
    knob.set(options, OsStr::new(value.trim()))
}

/// Where a profile lies: in the folder of profiles, or where a path says.
pub fn path_of(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // The standard says that a relative path there is to be ignored.
    let config = named("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || named("HOME").map(|home| Path::new(&home).join(".config"));
    let folder = config.or_else(home).ok_or("there is no place for profiles: HOME is not set")?;
    Ok(folder.join("datapump/profiles").join(name))
}

pub const PROFILE: &str = "profile";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_sets_options_and_what_is_wrong_has_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anl");
        let cases = [
            ("# anl\nstreams 8\nwindow  1M # wide\n", Ok((8, Some(1 << 20)))),
            ("# nothing\n", Ok((4, None))),
            ("streams 8\nstraems 9\n", Err("line 2 of '")),
            ("streams 99\n", Err("line 1 of '")),
            ("profile x\n", Err("line 1 of '")),
        ];
        for (text, expect) in cases {
            fs::write(&path, text).unwrap();
            let mut options = Options::default();
            let done = apply(path.as_os_str(), Verb::Copy, &mut options);
            let settings = &options.settings;
            match expect {
                Ok(expect) => {
                    assert_eq!(done, Ok(()), "{text}");
                    assert_eq!((settings.streams, settings.window_bytes), expect, "{text}");
                }
                Err(expect) => assert!(done.unwrap_err().contains(expect), "{text}"),
            }
        }
        let none = folder.path().join("none");
        let why = apply(none.as_os_str(), Verb::Copy, &mut Options::default()).unwrap_err();
        assert!(why.contains("'datapump sweep profile' writes it"), "{why}");
    }
}
