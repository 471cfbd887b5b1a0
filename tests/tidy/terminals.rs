//! Text for a terminal goes through one door, which makes it harmless.

use crate::{Finding, Page, Rule, each_code_line, has_macro, of_the_program};

pub(crate) const RULE: Rule = Rule {
    name: "text for a terminal goes through the console, which makes it harmless",
    look: rule,
    bad: &[
        ("src/cli/limit.rs", "fn f() { print(&mut io::stdout(), x); }"),
        ("src/spread/far.rs", "fn f() { io::stderr().write_all(x); }"),
        ("mover/src/pump/lane.rs", "fn f() { eprintln!(\"x\") }"),
        ("src/cli/explain.rs", "fn f() { escape::page(x); }"),
        ("src/cli/limit.rs", "fn f() { println!(\"x\") }"),
        ("src/spread/launcher/ssh.rs", "fn f() { command.stderr(Stdio::inherit()); }"),
    ],
    good: &[
        ("src/cli/console.rs", "fn f() { io::stdout().write_all(escape::page(x)); }"),
        ("src/cli/limit.rs", "fn f() { console::say_line(Channel::Stdout, x); }"),
        ("xtask/src/main.rs", "fn f() { println!(\"x\") }"),
        ("mover/src/io/tcp.rs", "// println!(\"x\")"),
    ],
};

/// Files that may name standard output and error, and print pages, each with its reason.
const DOORS: &[(&str, &str)] = &[
    ("src/cli/console.rs", "the door"),
    ("base/src/escape.rs", "what makes text harmless"),
    ("src/probe/mod.rs", "speaks its protocol"),
    ("src/spread/far/serving.rs", "speaks its protocol"),
    ("mover/src/pump/lane/assembly.rs", "payload to a pipe"),
    ("mover/src/main.rs", "a far side alone: its own version and usage"),
    ("mover/src/remote/installed.rs", "answers the script that installs it"),
    ("mover/src/remote/launch.rs", "what a far side prints, through escape::line"),
    ("mover/src/remote/peer.rs", "what a far side speaks, and its refusal through escape::line"),
];

fn rule(pages: &[Page]) -> Vec<Finding> {
    each_code_line(pages, |page, line| {
        let is_door = DOORS.iter().any(|(file, _)| *file == page.path);
        if is_door || of_the_program(&page.path).is_none() {
            return None;
        }
        let macros = ["println", "eprintln", "print", "eprint"];
        if let Some(found) = macros.into_iter().find(|name| has_macro(line, name)) {
            return Some(format!("{found}! goes around the console"));
        }
        let around = ["stdout()", "stderr()", "Stdio::inherit", "escape::page"];
        let found = around.into_iter().find(|words| line.contains(words))?;
        // What a child's pipe is called is not ours.
        let is_own = !found.starts_with("std") || line.contains(&format!("io::{found}"));
        is_own.then(|| format!("{found} goes around the console"))
    })
}
