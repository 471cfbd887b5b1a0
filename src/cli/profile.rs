//! Options of `copy` that are kept under a name: one a line, as `streams 8`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use super::command_id::CommandId;
use super::options::moving::{CONFIG, PROFILE};
use super::options::{self, AnyOption};
use base::fault::reason;

/// The options of a profile, each with a valid value. Options on the command line come later, and
/// count.
pub(super) fn options(
    name: &str,
    command: CommandId,
) -> Result<Vec<(&'static dyn AnyOption, OsString)>, String> {
    let text_of = |why: String| format!("--profile '{name}': {why}");
    let path = path_of(name).map_err(text_of)?;
    let text = fs::read_to_string(&path).map_err(|why| {
        let shown = path.display();
        text_of(format!(
            "cannot read '{shown}': {}; 'datapump sweep profile' writes it",
            reason(&why)
        ))
    })?;
    let mut options = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let option = option(line, command);
            options.push(
                option.map_err(|why| {
                    text_of(format!("line {number} of '{}': {why}", path.display()))
                })?,
            );
        }
    }
    Ok(options)
}

fn option(line: &str, command: CommandId) -> Result<(&'static dyn AnyOption, OsString), String> {
    let line = line.strip_prefix("--").unwrap_or(line);
    let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let known = options::find(command, name);
    let known = known.filter(|_| ![PROFILE.name, CONFIG.name].contains(&name));
    let option = known.ok_or_else(|| format!("{} has no option --{name}", command.typed()))?;
    let value = OsStr::new(value.trim());
    option.check(value)?;
    Ok((option, value.to_os_string()))
}

/// The path of a profile: in the folder of profiles, or where a path says.
pub(crate) fn path_of(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let folder = config_folder().ok_or("there is no place for profiles: HOME is not set")?;
    Ok(folder.join("profiles").join(name))
}

/// Where profiles and the configuration file are.
pub(super) fn config_folder() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // The XDG specification says to ignore a relative path.
    let config = named("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || named("HOME").map(|home| Path::new(&home).join(".config"));
    Some(config.or_else(home)?.join("datapump"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::settings;
    use crate::cli::typed::Typed;

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
            ("--streams 8\n", Ok((8, None))),
        ];
        for (text, expect) in cases {
            fs::write(&path, text).unwrap();
            let name = path.to_str().unwrap();
            match expect {
                Ok(expect) => {
                    let words = ["datapump", "copy", "a", "b", "--profile", name];
                    let typed = Typed::parse(&words.map(OsString::from)).unwrap();
                    let settings = settings(&typed).unwrap();
                    assert_eq!((settings.streams, settings.window_bytes), expect, "{text}");
                }
                Err(expect) => {
                    let why = options(name, CommandId::Copy).unwrap_err();
                    assert!(why.contains(expect), "{text}: {why}");
                }
            }
        }
        let none = folder.path().join("none");
        let why = options(none.to_str().unwrap(), CommandId::Copy).unwrap_err();
        assert!(why.contains("'datapump sweep profile' writes it"), "{why}");
    }
}
