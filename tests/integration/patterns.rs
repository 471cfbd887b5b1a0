//! Patterns of `--exclude` and `--include` beside git, whose rules they are.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mover::io::sim::Rng;
use mover::pump::source::select::{Select, Shape, check_pattern};

use crate::support::{Scene, data, need};

/// How many sets of patterns are drawn; `DATAPUMP_PATTERNS` draws more.
const PATTERNS: u64 = 1000;
const SEED: u64 = 2026;
/// The lines of one file: with more of them, most decide nothing.
const PATTERNS_OF_FILE: u64 = 8;

/// Generated patterns, one to three at a time, over names that have what patterns are made of: the
/// same names are left out as git ignores.
#[test]
fn patterns_are_those_of_git() {
    let folder = tempfile::tempdir().unwrap();
    let names = lay(folder.path());
    let init = git(folder.path(), &["init", "-q"]).status().unwrap();
    assert!(init.success());
    let count = std::env::var("DATAPUMP_PATTERNS").map_or(PATTERNS, |count| count.parse().unwrap());
    let (mut compared, mut random) = (0, Random(Rng::new(SEED)));
    for _ in 0..count {
        let lines: Vec<String> = (0..1 + random.below(3)).map(|_| random.pattern()).collect();
        // gitignore(5): two asterisks in a word are regular ones. git reads 'x**/**' otherwise:
        // findings/git_matches_a_folder_itself_by_two_asterisks_in_a_word_before_a_slash.sh
        if lines.iter().any(|line| has_asterisks_in_a_word(line)) {
            continue;
        }
        // What is not taken as a pattern is refused by name, and not read otherwise.
        if lines.iter().any(|line| check_pattern(line.strip_prefix('!').unwrap_or(line)).is_err()) {
            continue;
        }
        let select = Select::new(&lines).unwrap();
        let ours: BTreeSet<&str> = names
            .iter()
            .filter(|(name, shape)| select.leaves_out_with_parents(name.as_bytes(), *shape))
            .map(|(name, _)| name.as_str())
            .collect();
        let gits = ignored(folder.path(), &lines, &names);
        assert_eq!(ours, gits.iter().map(String::as_str).collect(), "{lines:?}");
        compared += 1;
    }
    assert!(compared * 2 > count, "{compared} of {count} were compared");
}

/// The same patterns as lines of a file, with comments, empty lines and blanks between them: the
/// program copies what git does not ignore. As many at a time as `PATTERNS_OF_FILE`.
#[test]
fn files_of_patterns_are_those_of_git() {
    let scene = Scene::new();
    let src = scene.path("src");
    fs::create_dir(&src).unwrap();
    let names = lay(&src);
    assert!(git(&src, &["init", "-q"]).status().unwrap().success());
    let (mut patterns, mut left_out, mut random) = (0, 0, Random(Rng::new(SEED + 1)));
    for round in 0.. {
        let lines: Vec<String> = (0..PATTERNS_OF_FILE).map(|_| random.line()).collect();
        let is_read = |line: &&String| !has_asterisks_in_a_word(line) && is_taken(line);
        let lines: Vec<String> = lines.iter().filter(is_read).cloned().collect();
        fs::write(scene.path("patterns"), lines.join("\n")).unwrap();
        let to = format!("out{round}");
        let line = format!("copy -r --exclude-from @/patterns --exclude /.git/ @/src/ @/{to}");
        scene.succeed(&line);
        let is_file = |(_, shape): &&(String, Shape)| *shape == Shape::Other;
        let gits = ignored(&src, &lines, &names);
        let kept = names.iter().filter(is_file).map(|(name, _)| name);
        let kept: BTreeSet<_> = kept.filter(|name| !gits.contains(*name)).cloned().collect();
        let inside = |path: &PathBuf| {
            path.strip_prefix(scene.path(&to)).unwrap().to_str().unwrap().to_string()
        };
        let ours: BTreeSet<_> = data::files_below(&scene.path(&to)).iter().map(inside).collect();
        assert_eq!(ours, kept, "{lines:?}");
        patterns += lines.len() as u64;
        left_out += gits.len();
        if patterns >= PATTERNS {
            break;
        }
    }
    assert!(left_out > 1000, "{left_out}");
}

/// True for what is no pattern, and for a pattern that is read and not refused by name, as what
/// looks like a line of rsync's is.
fn is_taken(line: &str) -> bool {
    let pattern = line.trim_end_matches(' ');
    let is_comment = pattern.is_empty() || pattern.starts_with('#');
    let is_of_rsync = line.starts_with("- ");
    is_comment
        || !is_of_rsync && check_pattern(pattern.strip_prefix('!').unwrap_or(pattern)).is_ok()
}

/// What the reports of others had: braces, classes by name, negated classes and the slash.
#[test]
fn reported_patterns_are_those_of_git() {
    let folder = tempfile::tempdir().unwrap();
    let names = lay(folder.path());
    assert!(git(folder.path(), &["init", "-q"]).status().unwrap().success());
    for line in [
        "[[:alpha:]]",
        "[[:digit:][:space:]]",
        "{a}",
        "{a,b}",
        "a[!0-9]b",
        "a[^-]b",
        "[\\]]",
        "[]]",
        "[!]]",
        "[+--]",
        "[.-0]",
        "a[/]b",
        "[[:punct:]]",
        "\\{a\\}",
        "[a-",
        "**/b",
        "a/**",
        "[[:bad:]]",
        "[[:alpha:]",
        "*[!a]",
        "a b",
        "a\\ ",
        "?",
        "[!!]",
        "[\\^a]",
    ] {
        if check_pattern(line).is_ok() {
            let lines = [line.to_string()];
            let select = Select::new(&lines).unwrap();
            let ours: BTreeSet<String> = names
                .iter()
                .filter(|(name, shape)| select.leaves_out_with_parents(name.as_bytes(), *shape))
                .map(|(name, _)| name.clone())
                .collect();
            assert_eq!(ours, ignored(folder.path(), &lines, &names), "{line}");
        }
    }
}

fn has_asterisks_in_a_word(line: &str) -> bool {
    line.match_indices("**").any(|(at, _)| {
        let before = line[..at].trim_end_matches('*').trim_start_matches('!');
        let after = line[at..].trim_start_matches('*');
        let is_end = |text: &str, slash: bool| text.is_empty() || slash;
        !(is_end(before, before.ends_with('/')) && is_end(after, after.starts_with('/')))
    })
}

fn lay(root: &Path) -> Vec<(String, Shape)> {
    let files = [
        "a", "b", "1", "-", "^", "!", "[", "]", "{a}", "{a,b}", ",", "a-b", "a b", "a ", " ", ".a",
        ".", "a.b", "ab", "aab", "aXb", "a1b", "\\", "*", "?", "a]", "+", "0", "~", "A", "_",
        "d/a", "d/b", "d/{a}", "d/1", "d/e/a", "d/e/ab", "d/e/.a", "a-/b", "x/b", "x/-", "{a/b}",
        "ü",
    ];
    let mut names = Vec::new();
    for name in files.into_iter().filter(|name| *name != ".") {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        names.push((name.to_string(), Shape::Other));
        for (at, _) in name.match_indices('/') {
            let folder = (name[..at].to_string(), Shape::Folder);
            if !names.contains(&folder) {
                names.push(folder);
            }
        }
    }
    names
}

fn git(folder: &Path, words: &[&str]) -> Command {
    let mut git = Command::new(need("git", "git"));
    git.args(["-c", "core.excludesFile=.git/patterns", "-c", "core.quotePath=false"]).args(words);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    git.current_dir(folder);
    git
}

/// The names that git ignores by these lines.
fn ignored(folder: &Path, lines: &[String], names: &[(String, Shape)]) -> BTreeSet<String> {
    fs::write(folder.join(".git/patterns"), lines.join("\n") + "\n").unwrap();
    let mut check = git(folder, &["check-ignore", "--no-index", "--stdin", "-z"]);
    let mut ran = check.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let asked: Vec<u8> =
        names.iter().flat_map(|(name, _)| [name.as_bytes(), b"\0"].concat()).collect();
    ran.stdin.take().unwrap().write_all(&asked).unwrap();
    let said = ran.wait_with_output().unwrap();
    assert!(matches!(said.status.code(), Some(0 | 1)), "{said:?}");
    let of = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    said.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(of).collect()
}

struct Random(Rng);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0.below(count)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn pattern(&mut self) -> String {
        let mut pattern = String::new();
        if self.below(4) == 0 {
            pattern.push('!');
        }
        if self.below(6) == 0 {
            pattern.push('/');
        }
        for _ in 0..1 + self.below(4) {
            let part = match self.below(4) {
                0 => self.class(),
                1 => self.pick(&["*", "?", "**", "/", "**/", "/**"]).to_string(),
                _ => self.pick(&PLAIN).to_string(),
            };
            pattern.push_str(&part);
        }
        if self.below(6) == 0 {
            pattern.push('/');
        }
        pattern
    }

    /// A line of a file.
    fn line(&mut self) -> String {
        match self.below(8) {
            0 => self.pick(&["", "   ", "# a", "#"]).to_string(),
            1 => format!("{}  ", self.pattern()),
            _ => self.pattern(),
        }
    }

    fn class(&mut self) -> String {
        let mut class = String::from("[");
        class.push_str(self.pick(&["", "", "!", "^"]));
        for _ in 0..1 + self.below(3) {
            class.push_str(self.pick(&MEMBERS));
        }
        class.push(']');
        class
    }
}

const PLAIN: [&str; 17] =
    ["a", "b", "d", "e", "1", "-", "{", "}", ",", "{a,b}", "\\{", "\\*", "\\[", "]", ".", " ", "x"];
const MEMBERS: [&str; 19] = [
    "a",
    "b",
    "1",
    "-",
    "]",
    "[",
    "^",
    "!",
    "\\]",
    "\\-",
    "\\\\",
    "/",
    "a-c",
    "+-0",
    ",-.",
    "[:alpha:]",
    "[:digit:]",
    "[:punct:]",
    "[:blank:]",
];
