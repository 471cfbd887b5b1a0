//! The rules of the project, as tests: each rule checks the project's text, and is tested itself.

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/secrets.rs"]
mod secrets;
#[path = "tidy/terminals.rs"]
mod terminals;
#[path = "tidy/vocabulary.rs"]
mod vocabulary;
#[path = "tidy/wire_hash.rs"]
mod wire_hash;

use std::fs;
use std::path::Path;

use code::{code_only, functions, has_word};

/// A file of the project: its path from the root, with slashes, and its text.
struct Page {
    path: String,
    text: String,
}

/// Where and what: `mover/src/io/tcp.rs:17: unsafe without a SAFETY comment`.
type Finding = String;

struct Rule {
    name: &'static str,
    look: fn(&[Page]) -> Vec<Finding>,
    /// Files that the rule must object to, and files that it must let pass.
    bad: &'static [(&'static str, &'static str)],
    good: &'static [(&'static str, &'static str)],
}

#[test]
fn the_repository_is_tidy() {
    let pages = project();
    let findings: Vec<String> = RULES
        .iter()
        .flat_map(|rule| (rule.look)(&pages).into_iter().map(|f| format!("[{}] {f}", rule.name)))
        .collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// A rule that cannot fail is a defect of the rule.
#[test]
fn every_rule_bites() {
    for rule in RULES {
        let look = |sample: &[(&str, &str)]| (rule.look)(&pages_of(sample));
        for bad in rule.bad {
            assert!(!look(&[*bad]).is_empty(), "{} lets pass: {bad:?}", rule.name);
        }
        assert!(!rule.bad.is_empty(), "{} has no bad sample", rule.name);
        assert_eq!(look(rule.good), Vec::<String>::new(), "{} objects to a good sample", rule.name);
    }
}

/// So no two modules depend on each other, directly or through others.
#[test]
fn modules_stand_in_a_line() {
    for (place, (name, allowed)) in WALLS.iter().enumerate() {
        let above = |known: &&str| WALLS[..place].iter().any(|(above, _)| above == known);
        let below: Vec<_> = allowed.iter().filter(|known| !above(known)).collect();
        assert!(below.is_empty(), "{name} may know {below:?}, which do not stand above it");
    }
    for (name, _) in BANNED {
        assert!(WALLS.iter().any(|(module, _)| module == name), "{name} is no module");
    }
}

#[test]
fn wire_document_states_the_hash() {
    let stated = |page: &str| {
        let pages =
            pages_of(&[("mover/src/wire/frame.rs", "struct Frame;"), ("docs/WIRE.md", page)]);
        wire_document(&pages)
    };
    let files = vec![("mover/src/wire/frame.rs".to_string(), "struct Frame;".to_string())];
    assert_eq!(stated(&format!("hash: {}", wire_hash::wire_hash(files))), Vec::<String>::new());
    assert_eq!(stated("hash: none").len(), 1);
}

const RULES: &[Rule] = &[
    Rule {
        name: "walls between modules",
        look: walls,
        bad: &[
            ("mover/src/wire/frame.rs", "use crate::io::Engine;"),
            ("base/src/units.rs", "fn f() -> crate::wire::Frame { todo() }"),
            ("mover/src/ends/tree.rs", "use crate::{base::Extent, pump::Plan};"),
            ("mover/src/io/tcp.rs", "use super::super::wire::Frame;"),
            ("src/attic/mod.rs", "use crate::base::Extent;"),
            ("analysis/src/diagnosis/stream.rs", "use crate::io::clock;"),
            ("analysis/src/model/fit.rs", "use crate::results::Store;"),
            ("src/probe/knock.rs", "fn f(x: crate::sweep::course::Course) {}"),
            ("src/results/mod.rs", "use mover::pump::Plan;"),
            ("src/host/file.rs", "use analysis::{record::Sample, study::cells};"),
            ("s3/src/client.rs", "use mover::pump::Plan;"),
        ],
        good: &[
            (
                "mover/src/wire/frame.rs",
                "use crate::base::Extent; // not crate::io\nuse crate::wire::x;",
            ),
            ("src/cli/mod.rs", "use crate::{remote::Far, report};"),
            ("mover/src/ends/tree.rs", "use base::Extent;\nuse crate::{io::Verb, work::seal};"),
            ("src/cli/order.rs", "use mover::remote::Far;\nuse analysis::report;"),
            ("base/src/job.rs", "use crate::codec::Codec;"),
        ],
    },
    Rule {
        name: "what a module must never contain",
        look: banned_in_module,
        bad: &[
            ("mover/src/wire/frame.rs", "use std::io::Read;"),
            ("mover/src/wire/session.rs", "use std::{fmt, io};"),
            ("mover/src/ends/tree.rs", "std::thread::spawn(|| ());"),
            ("analysis/src/report/text.rs", "fn f() { std::fs::read(x); }"),
            ("analysis/src/predict/path_model.rs", "use std::{fmt, thread};"),
            ("analysis/src/record/export.rs", "use std::io;\nfn f() { io::stdout(); }"),
            ("analysis/src/doctor/tests.rs", "fn f() { tempfile::tempdir(); }"),
            ("analysis/src/study/cells.rs", "use rustix::process::geteuid;"),
        ],
        good: &[
            ("mover/src/wire/frame.rs", "use std::fmt; use std::{fmt, mem}; // std::io"),
            ("mover/src/io/tcp.rs", "use std::io;"),
            ("analysis/src/record/export.rs", "use std::io::{self, Write};"),
            ("src/host/file.rs", "use std::fs;"),
        ],
    },
    Rule {
        name: "unsafe has an address and a reason",
        look: unsafe_has_address,
        bad: &[
            ("mover/src/pump/lane.rs", "// SAFETY: it is not.\nunsafe { f() }"),
            ("mover/src/io/uring.rs", "fn f() {\n    unsafe { g() }\n}"),
            ("mover/src/io/tcp.rs", "// SAFETY: of something else.\n\nunsafe { g() }"),
        ],
        good: &[
            ("mover/src/io/uring.rs", "// SAFETY: the ring is ours.\nlet x =\n    unsafe { g() };"),
            ("src/lib.rs", "#![deny(unsafe_code)] // unsafe"),
        ],
    },
    Rule {
        name: "a function fits a screen",
        look: function_length,
        bad: &[("mover/src/io/tcp.rs", LONG_FUNCTION)],
        good: &[(
            "mover/src/io/tcp.rs",
            "trait T { fn f(a: [u8; 2]); }\nfn g<F: Fn(u8)>(f: fn(u8)) {\n}",
        )],
    },
    Rule {
        name: "a line has at most 100 columns",
        look: line_length,
        bad: &[("tests/copy.rs", LONG_LINE)],
        good: &[("tests/copy.rs", "// ten columns\n")],
    },
    Rule {
        name: "a file has at most 900 lines",
        look: file_length,
        bad: &[("mover/src/io/tcp.rs", LONG_FILE)],
        good: &[("mover/src/io/tcp.rs", "fn f() {}\n")],
    },
    Rule {
        name: "a file of the program has at most 600 lines of code",
        look: code_length,
        bad: &[("mover/src/io/tcp.rs", LONG_FILE)],
        good: &[
            ("mover/src/io/tcp.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n}\n"),
            ("mover/src/io/tests.rs", LONG_FILE),
        ],
    },
    secrets::RULE,
    terminals::RULE,
    Rule {
        name: "nothing is left for later",
        look: leftovers,
        bad: &[
            ("mover/src/io/tcp.rs", concat!("to", "do!()")),
            ("mover/src/io/tcp.rs", concat!("// FIX", "ME: later")),
            ("tests/copy.rs", concat!("db", "g!(x)")),
            ("xtask/src/main.rs", concat!("unimple", "mented!()")),
        ],
        good: &[("mover/src/io/tcp.rs", "// todo is a word of the language of people\n")],
    },
    Rule {
        name: "clocks stand in io and cli/progress",
        look: clocks,
        bad: &[
            ("mover/src/pump/lane.rs", "let now = Instant::now();"),
            ("src/cli/order.rs", "std::time::SystemTime::now()"),
            ("analysis/src/report/json.rs", "Instant::now()"),
        ],
        good: &[
            ("mover/src/io/tcp.rs", "Instant::now()"),
            ("src/cli/progress.rs", "Instant::now()"),
        ],
    },
    Rule {
        name: "decisions depend on nothing but what they are told",
        look: undetermined,
        bad: &[
            ("mover/src/pump/transfer.rs", "let now = clock::now();"),
            ("mover/src/wire/session.rs", "use std::collections::{BTreeMap, HashMap};"),
            ("mover/src/pump/sink.rs", "seen: HashSet<u64>,"),
            ("mover/src/pump/source/plan.rs", "let clock = HostClock;"),
            ("mover/src/work/codec.rs", "let pick = rand::random();"),
        ],
        good: &[
            ("mover/src/pump/run.rs", "transfer.handle(clock::now(), event)"),
            ("mover/src/pump/transfer.rs", "use std::collections::BTreeMap; // no HashMap"),
            ("mover/src/remote/copy.rs", "let now = clock::now();"),
        ],
    },
    Rule {
        name: "decision records are linked",
        look: decisions,
        bad: &[("docs/decisions/0001-lanes.md", "# Lanes")],
        good: &[
            ("docs/decisions/0001-lanes.md", "# Lanes"),
            ("ARCHITECTURE.md", "see [lanes](docs/decisions/0001-lanes.md)"),
        ],
    },
    Rule {
        name: "links of documents lead somewhere",
        look: links::links,
        bad: &[
            ("docs/guide/a.md", "see [b](../nowhere.md)"),
            ("README.md", "# One\n\nsee [two](#two)"),
        ],
        good: &[
            ("README.md", "# The one\n\n[a](docs/a.md#it-s) [w](https://w.org) [1](#the-one)"),
            ("docs/a.md", "## it-s\n\n[up](../README.md)\n\n```text\n[no](link)\n```"),
        ],
    },
    Rule {
        name: "the journeys of ARCHITECTURE.md lead where they say",
        look: journeys,
        bad: &[
            ("ARCHITECTURE.md", "1. `mover/src/pump/lane.rs` `depart`: it goes."),
            (
                "ARCHITECTURE.md",
                "1. `mover/src/pump/lane.rs` `depart`\n2. `mover/src/io/tcp.rs`: no function",
            ),
        ],
        good: &[
            (
                "ARCHITECTURE.md",
                "1. `mover/src/pump/lane.rs` `depart`: of `mover/src/pump/lane.rs` `POOL`.",
            ),
            ("mover/src/pump/lane.rs", "static POOL: u8 = 1;\nfn depart() {}"),
        ],
    },
    Rule {
        name: "names are the field's, see docs/GLOSSARY.md",
        look: vocabulary::private_names,
        bad: &[
            ("mover/src/pump/lane.rs", "struct CrewMember;"),
            ("src/cli/mod.rs", "//! What the knobs mean."),
            ("src/cli/mod.rs", "fn set_knob() {}"),
            ("src/cli/mod.rs", "enum Voice {}"),
            ("README.md", "a WAN on the desk"),
        ],
        good: &[
            (
                "src/cli/mod.rs",
                "/// A voice is heard, in a place on the ground.\nfn f(desktop: u8) {}",
            ),
            ("docs/decisions/0031-compression.md", "a crew at its desk"),
        ],
    },
    Rule {
        name: "docs/WIRE.md states the hash of mover/src/wire",
        look: wire_document,
        bad: &[("mover/src/wire/frame.rs", "struct Frame;"), ("docs/WIRE.md", "hash: 00")],
        good: &[],
    },
    Rule {
        name: "every file is reachable",
        look: reachable,
        bad: &[("mover/src/io/tcp.rs", "fn f() {}"), ("mover/src/io/mod.rs", "mod tcp;")],
        good: &[
            ("mover/src/lib.rs", "pub mod io;"),
            ("mover/src/io/mod.rs", "mod tcp;"),
            ("mover/src/io/tcp.rs", ""),
        ],
    },
    Rule {
        name: "no path of somebody's machine",
        look: machine_paths,
        bad: &[
            ("README.md", concat!("run /wo", "rk/main/x")),
            ("runs/2026-11-20-peers.md", concat!("`/ro", "ot/.ssh`")),
            ("mover/src/io/tcp.rs", concat!("// /ho", "me/ada/data")),
        ],
        good: &[("README.md", "mover/src/work/seal.rs and ../work/seal.rs and /home/user/data")],
    },
    Rule {
        name: "no drawer for everything",
        look: drawers,
        bad: &[
            ("mover/src/io/utils.rs", ""),
            ("mover/src/pump/manager.rs", ""),
            ("src/common/mod.rs", ""),
        ],
        good: &[("mover/src/io/tcp.rs", "")],
    },
];

/// The modules that a module may use, besides itself. Each is below those that it may use.
const WALLS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &["base"]),
    ("io", &["base"]),
    ("work", &["base", "wire", "io"]),
    // The record layer of `work::seal` seals a stream's frames.
    ("ends", &["base", "wire", "io", "work"]),
    ("pump", &["base", "wire", "io", "work", "ends"]),
    // A client of object stores: no type of it is known below.
    ("s3", &["base", "io"]),
    // Receipts of what was written, and whether the files still agree.
    ("receipt", &["base", "io", "work", "pump"]),
    ("folder_listing", &["base", "io", "pump"]),
    ("remote", &["base", "wire", "io", "work", "ends", "pump", "receipt", "folder_listing"]),
    // Pure: analysis of measurements.
    ("statistics", &[]),
    ("record", &["base"]),
    ("accounting", &["base", "record"]),
    ("diagnosis", &["base", "statistics", "record"]),
    ("nettest", &["base"]),
    ("doctor", &["base"]),
    ("model", &["base", "statistics", "record"]),
    ("study", &["base", "statistics", "record", "model"]),
    ("predict", &["base", "statistics", "record", "model"]),
    ("campaign", &["base", "statistics", "record", "accounting", "diagnosis", "study", "model"]),
    ("trend", &["base", "statistics", "record", "campaign"]),
    // A dataset over many nodes: its plan, its leases, what a worker does next.
    ("shards", &["base"]),
    (
        "report",
        &[
            "base",
            "statistics",
            "record",
            "diagnosis",
            "nettest",
            "doctor",
            "model",
            "study",
            "predict",
            "campaign",
            "trend",
            "shards",
        ],
    ),
    // Charts and pages of what the modules above found.
    ("plot", &["report"]),
    (
        "page",
        &[
            "base",
            "statistics",
            "record",
            "diagnosis",
            "model",
            "study",
            "predict",
            "campaign",
            "trend",
            "shards",
            "report",
            "plot",
        ],
    ),
    // These examine hosts, keep records and run experiments.
    ("host", &["base", "io", "record", "accounting"]),
    ("results", &["base", "record", "model"]),
    ("probe", &["base", "io", "remote", "record", "accounting", "doctor", "host"]),
    ("measure", MEASURE),
    ("spread", &["base", "wire", "io", "pump", "remote", "receipt", "shards", "report"]),
    ("sweep", SWEEP),
    // What is shown of running commands to other programs.
    ("telemetry", &["base", "io", "pump", "s3", "record", "shards", "report", "page"]),
    ("cli", CLI),
];

const SWEEP: &[&str] =
    &["base", "io", "pump", "remote", "s3", "record", "campaign", "host", "results", "probe"];

const MEASURE: &[&str] = &[
    "base",
    "io",
    "work",
    "ends",
    "pump",
    "remote",
    "statistics",
    "record",
    "accounting",
    "model",
    "study",
    "host",
    "probe",
];

const CLI: &[&str] = &[
    "base",
    "wire",
    "io",
    "work",
    "ends",
    "pump",
    "folder_listing",
    "remote",
    "receipt",
    "statistics",
    "record",
    "accounting",
    "diagnosis",
    "nettest",
    "doctor",
    "model",
    "study",
    "predict",
    "campaign",
    "trend",
    "shards",
    "report",
    "plot",
    "page",
    "host",
    "results",
    "probe",
    "measure",
    "spread",
    "sweep",
    "telemetry",
];

/// Words that a module must not contain, besides what `WALLS` forbids.
const BANNED: &[(&str, &[&str])] = &[
    ("base", &["std::fs", "std::net", "std::thread"]),
    ("wire", &["std::io", "std::net", "std::fs", "std::thread", "std::time"]),
    ("ends", &["std::thread", "std::sync::Condvar"]),
    ("statistics", IMPURE),
    ("record", IMPURE),
    ("accounting", IMPURE),
    ("diagnosis", IMPURE),
    ("nettest", IMPURE),
    ("doctor", IMPURE),
    ("model", IMPURE),
    ("study", IMPURE),
    ("predict", IMPURE),
    ("campaign", IMPURE),
    ("trend", IMPURE),
    ("shards", IMPURE),
    ("report", IMPURE),
    ("plot", IMPURE),
    ("page", IMPURE),
];

/// What a pure module must not name: files, sockets, processes, threads, clocks, the environment
/// and the store. It may write to a writer that it is given.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::os::fd",
    "std::os::unix::fs",
    "std::os::unix::net",
    "std::os::unix::process",
    "std::os::linux",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "io::stdin",
    "io::stdout",
    "io::stderr",
    "rustix",
    "tempfile",
    "rusqlite::Connection",
    "rusqlite::Transaction",
];

/// Where the sources of the program's packages begin.
const SOURCES: &[&str] = &["analysis/src/", "base/src/", "mover/src/", "s3/src/", "src/"];

const UNSAFE_FILES: &[&str] =
    &["mover/src/io/buffer.rs", "mover/src/io/uring.rs", "mover/src/io/system.rs"];
/// Files outside `mover/src/io` and `cli/progress.rs` that may read a clock, each with its reason.
const CLOCK_FILES: &[(&str, &str)] = &[
    ("src/cli/end_to_end.rs", "how long copies take in all is told while they are made"),
    ("src/measure/trials.rs", "a run says when it began"),
    ("src/cli/mod.rs", "the start of the program, from which its events count"),
    ("src/cli/record.rs", "a run is recorded with the time at which it began"),
    ("src/cli/console.rs", "each event in JSON says when it happened, on the world's clock"),
];
/// Modules that the simulation runs unchanged, and files around them that it does not run: files,
/// or the beginnings of their paths, each with its reason.
const DETERMINED: &[&str] = &["base", "wire", "work", "ends", "pump"];
const SHELL_FILES: &[(&str, &str)] = &[
    ("mover/src/pump/run", "threads, sockets and the clock around a transfer"),
    ("mover/src/pump/lane/assembly.rs", "hands out the host's clock to workers"),
    ("mover/src/pump/sink/resume.rs", "waits for another process that ends"),
    ("mover/src/pump/lane/worker_pool.rs", "its tests run on threads"),
];
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 900;
const CODE_LINES_MAX: usize = 600;
/// The comment with the reason is right above, at most this many lines up.
const SAFETY_LINES_MAX: usize = 8;

fn walls(pages: &[Page]) -> Vec<Finding> {
    each_code_line(pages, |page, line| {
        let module = module_of(&page.path)?;
        let Some((_, allowed)) = WALLS.iter().find(|(name, _)| *name == module) else {
            return Some(format!("the module '{module}' is not in the table of modules"));
        };
        let strange = modules_named(line).into_iter().find(|named| {
            *named != module
                && WALLS.iter().any(|(name, _)| name == named)
                && !allowed.contains(&named.as_str())
        })?;
        Some(format!("{module} must not know {strange}"))
    })
}

fn banned_in_module(pages: &[Page]) -> Vec<Finding> {
    each_code_line(pages, |page, line| {
        let module = module_of(&page.path)?;
        let (_, banned) = BANNED.iter().find(|(name, _)| *name == module)?;
        let paths = paths_named(line);
        let word = banned.iter().find(|ban| {
            paths.iter().any(|path| path == **ban || path.starts_with(&format!("{ban}::")))
        })?;
        Some(format!("{module} must not contain {word}"))
    })
}

fn unsafe_has_address(pages: &[Page]) -> Vec<Finding> {
    each_code_line_numbered(pages, |page, number, line| {
        if of_the_program(&page.path).is_none() || !has_word(line, "unsafe") {
            return None;
        }
        if !UNSAFE_FILES.contains(&page.path.as_str()) {
            return Some("unsafe outside its addresses".to_string());
        }
        let lines: Vec<&str> = page.text.lines().collect();
        let above = lines[..number].iter().rev().take(SAFETY_LINES_MAX);
        let reasoned = above.take_while(|l| !l.trim().is_empty()).any(|l| l.contains("SAFETY:"));
        (!reasoned).then(|| "unsafe without a SAFETY comment".to_string())
    })
}

fn function_length(pages: &[Page]) -> Vec<Finding> {
    let long = |page: &Page| -> Vec<Finding> {
        let all = functions(&code_only(&page.text)).into_iter();
        let lines = all.map(|(name, first, last)| (name, first, last + 1 - first));
        lines
            .filter(|(_, _, count)| *count > FUNCTION_LINES_MAX)
            .map(|(name, first, count)| format!("{}:{first}: {name} has {count} lines", page.path))
            .collect()
    };
    rust(pages).flat_map(long).collect()
}

fn line_length(pages: &[Page]) -> Vec<Finding> {
    let long = |page: &Page| -> Vec<Finding> {
        let lines = page.text.lines().enumerate();
        lines
            .map(|(i, line)| (i + 1, line.chars().count()))
            .filter(|(_, columns)| *columns > LINE_COLUMNS_MAX)
            .map(|(number, columns)| format!("{}:{number}: {columns} columns", page.path))
            .collect()
    };
    rust(pages).flat_map(long).collect()
}

/// Code, without the tests that stand below it.
fn code_length(pages: &[Page]) -> Vec<Finding> {
    let lines = |page: &Page| {
        let tests = page.text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(page.text.len());
        page.text[..tests].lines().count()
    };
    let ours = rust(pages)
        .filter(|page| of_the_program(&page.path).is_some() && !page.path.ends_with("tests.rs"));
    ours.filter(|page| lines(page) > CODE_LINES_MAX)
        .map(|page| format!("{}: {} lines of code", page.path, lines(page)))
        .collect()
}

fn file_length(pages: &[Page]) -> Vec<Finding> {
    let long = rust(pages).filter(|page| page.text.lines().count() > FILE_LINES_MAX);
    long.map(|page| format!("{}: {} lines", page.path, page.text.lines().count())).collect()
}

fn leftovers(pages: &[Page]) -> Vec<Finding> {
    let macros = each_code_line(pages, |_, line| {
        let word =
            ["todo", "dbg", "unimplemented"].into_iter().find(|word| has_macro(line, word))?;
        Some(format!("{word}! is left over"))
    });
    let mark = concat!("FIX", "ME");
    let marked = rust(pages).filter(|page| page.text.contains(mark));
    macros.into_iter().chain(marked.map(|page| format!("{}: {mark}", page.path))).collect()
}

fn clocks(pages: &[Page]) -> Vec<Finding> {
    each_code_line(pages, |page, line| {
        let allowed = of_the_program(&page.path).is_none()
            || page.path.starts_with("mover/src/io/")
            || page.path == "src/cli/progress.rs"
            || CLOCK_FILES.iter().any(|(path, _)| *path == page.path);
        let clock = ["Instant::now", "SystemTime::now"].into_iter().find(|c| line.contains(c))?;
        (!allowed).then(|| format!("{clock}: time is an argument"))
    })
}

/// What the simulation runs must be deterministic: no clock, no map in a random order, no random
/// number.
fn undetermined(pages: &[Page]) -> Vec<Finding> {
    each_code_line(pages, |page, line| {
        let module = module_of(&page.path)?;
        let is_shell = SHELL_FILES.iter().any(|(path, _)| page.path.starts_with(path));
        if !DETERMINED.contains(&module) || is_shell {
            return None;
        }
        let words = ["HashMap", "HashSet", "HostClock", "rand", "getrandom", "RandomState"];
        let word = words.into_iter().find(|word| has_word(line, word));
        let clock = || line.contains("clock::now").then_some("clock::now");
        Some(format!("{} in what is simulated", word.or_else(clock)?))
    })
}

fn decisions(pages: &[Page]) -> Vec<Finding> {
    let map = text_of(pages, "ARCHITECTURE.md");
    let records = pages.iter().filter(|page| page.path.starts_with("docs/decisions/"));
    records
        .filter(|page| !map.contains(page.path.as_str()))
        .map(|page| format!("{} is not linked from ARCHITECTURE.md", page.path))
        .collect()
}

/// Each `file` `name` of the page is a function, constant or static of that file.
fn journeys(pages: &[Page]) -> Vec<Finding> {
    let map = text_of(pages, "ARCHITECTURE.md");
    let words: Vec<&str> = map.split('`').collect();
    let is_file = |word: &str| of_the_program(word).is_some() && word.ends_with(".rs");
    let steps = words.windows(3).filter(|three| is_file(three[0]) && three[1] == " ");
    let lost = steps.filter(|three| {
        let text = text_of(pages, three[0]);
        let starts = ["fn ", "static ", "const "].map(|kind| format!("{kind}{}", three[2]));
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        !starts.iter().any(|start| {
            text.match_indices(start.as_str()).any(|(at, found)| ends(&text[at + found.len()..]))
        })
    });
    lost.map(|three| format!("ARCHITECTURE.md: {} has no {}", three[0], three[2])).collect()
}

fn wire_document(pages: &[Page]) -> Vec<Finding> {
    let wire = pages.iter().filter(|page| page.path.starts_with("mover/src/wire/"));
    let files: Vec<_> = wire.map(|page| (page.path.clone(), page.text.clone())).collect();
    let stated = pages.iter().any(|page| page.path == "docs/WIRE.md");
    if files.is_empty() && !stated {
        return Vec::new();
    }
    let hash = wire_hash::wire_hash(files);
    match text_of(pages, "docs/WIRE.md").contains(&hash) {
        true => Vec::new(),
        false => vec![format!(
            "mover/src/wire has changed: read docs/WIRE.md against it, then state the hash {hash}"
        )],
    }
}

fn reachable(pages: &[Page]) -> Vec<Finding> {
    let lost = pages.iter().filter(|page| {
        let Some((package, inner)) = of_the_program(&page.path) else { return false };
        let Some(inner) = inner.strip_suffix(".rs") else { return false };
        if matches!(inner, "lib" | "main") {
            return false;
        }
        let inner = inner.strip_suffix("/mod").unwrap_or(inner);
        let (parent, name) = inner.rsplit_once('/').unwrap_or(("", inner));
        let homes = match parent {
            "" => vec![format!("{package}lib.rs"), format!("{package}main.rs")],
            parent => vec![format!("{package}{parent}/mod.rs"), format!("{package}{parent}.rs")],
        };
        let declares = |home: &String| text_of(pages, home).contains(&format!("mod {name};"));
        !homes.iter().any(declares)
    });
    lost.map(|page| format!("{}: no `mod` line leads here", page.path)).collect()
}

fn machine_paths(pages: &[Page]) -> Vec<Finding> {
    let roots = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
    ];
    let mut findings = Vec::new();
    for page in pages {
        for (number, line) in page.text.lines().enumerate() {
            for root in roots {
                let found = line.match_indices(root).any(|(at, _)| {
                    let inside = |c: char| c.is_alphanumeric() || "._-*}$)".contains(c);
                    let path_goes_on = line[..at].chars().next_back().is_some_and(inside);
                    !path_goes_on && !line[at..].starts_with(concat!("/ho", "me/user"))
                });
                if found {
                    findings.push(format!("{}:{}: {root}", page.path, number + 1));
                }
            }
        }
    }
    findings
}

fn drawers(pages: &[Page]) -> Vec<Finding> {
    let names = ["util", "utils", "common", "manager", "helper", "helpers", "misc"];
    let named = rust(pages).filter(|page| {
        let mut parts = page.path.trim_end_matches(".rs").split('/');
        parts.any(|part| names.contains(&part))
    });
    named.map(|page| format!("{}: say what it is for", page.path)).collect()
}

/// The module of a file of the program, or `None` for `lib.rs`, `main.rs` and everything outside.
/// The package `base` is one module.
fn module_of(path: &str) -> Option<&str> {
    let (package, inner) = of_the_program(path)?;
    match package {
        "base/src/" => Some("base"),
        "s3/src/" => Some("s3"),
        _ => inner.split_once('/').map(|(module, _)| module),
    }
}

/// Where the sources of a package begin, and the rest of the path, if the program has the file.
fn of_the_program(path: &str) -> Option<(&'static str, &str)> {
    SOURCES.iter().find_map(|package| Some((*package, path.strip_prefix(package)?)))
}

/// The modules that a line of code names, in its own package or in another.
fn modules_named(line: &str) -> Vec<String> {
    let begins = ["crate::", "super::super::", "mover::", "analysis::"];
    let module = |path: &String| -> Option<String> {
        if path.starts_with("base::") {
            return Some("base".to_string());
        }
        let inner = begins.iter().find_map(|begin| path.strip_prefix(begin))?;
        inner.split("::").next().map(String::from)
    };
    paths_named(line).iter().filter_map(module).collect()
}

/// Every path of a line, with groups written out: `a::{b::c, d}` names `a::b::c` and `a::d`.
fn paths_named(line: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    let mut path = String::new();
    for c in line.chars().chain([' ']) {
        match c {
            c if c.is_alphanumeric() || c == '_' || c == ':' => path.push(c),
            '{' if path.ends_with("::") => {
                groups.push(format!("{}{path}", groups.last().cloned().unwrap_or_default()));
                path.clear();
            }
            c => {
                if !path.is_empty() {
                    paths.push(format!("{}{path}", groups.last().cloned().unwrap_or_default()));
                    path.clear();
                }
                if c == '}' {
                    groups.pop();
                }
            }
        }
    }
    paths
}

fn has_macro(line: &str, name: &str) -> bool {
    has_word(line, name) && line.contains(&format!("{name}!"))
}

fn each_code_line(pages: &[Page], look: impl Fn(&Page, &str) -> Option<Finding>) -> Vec<Finding> {
    each_code_line_numbered(pages, |page, _, line| look(page, line))
}

/// Lines of code as statements see them: a group in braces that follows `::` counts as one line.
fn each_code_line_numbered(
    pages: &[Page],
    look: impl Fn(&Page, usize, &str) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in rust(pages) {
        let code = code_only(&page.text);
        let lines: Vec<&str> = code.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let rest = &lines[i..];
            let last = match line.trim_end().ends_with("::{") {
                true => rest.iter().position(|l| l.contains(';')).unwrap_or(0),
                false => 0,
            };
            let found = look(page, i + 1, &rest[..=last].join(" "));
            findings.extend(found.map(|what| format!("{}:{}: {what}", page.path, i + 1)));
        }
    }
    findings
}

fn rust(pages: &[Page]) -> impl Iterator<Item = &Page> {
    pages.iter().filter(|page| page.path.ends_with(".rs"))
}

fn text_of<'a>(pages: &'a [Page], path: &str) -> &'a str {
    pages.iter().find(|page| page.path == path).map_or("", |page| &page.text)
}

fn pages_of(sample: &[(&str, &str)]) -> Vec<Page> {
    let page =
        |(path, text): &(&str, &str)| Page { path: path.to_string(), text: text.to_string() };
    sample.iter().map(page).collect()
}

/// Every text file of the project that a person wrote.
fn project() -> Vec<Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !["target", ".git", "corpus", "shared"].contains(&name.as_str()) {
                open.push(path);
            } else if kind.is_file() && TEXT_ENDINGS.iter().any(|end| name.ends_with(end)) {
                let inner = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                pages.push(Page { path: inner, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    assert!(pages.iter().any(|page| page.path == "mover/src/lib.rs"), "the project was not found");
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

/// What counts as text that a person wrote.
const TEXT_ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".sh", "justfile", "run", ".yml"];

macro_rules! ten {
    ($text:literal) => {
        concat!($text, $text, $text, $text, $text, $text, $text, $text, $text, $text)
    };
}
const LONG_FUNCTION: &str = concat!(
    "fn f() {",
    ten!("\n"),
    ten!("\n"),
    ten!("\n"),
    ten!("\n"),
    ten!("\n"),
    ten!("\n"),
    ten!("\n"),
    "}"
);
const LONG_LINE: &str = concat!("//", ten!("ten colum"), ten!("-"), "x");
const LONG_FILE: &str = concat!(
    ten!("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"),
    ten!("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"),
    ten!("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n")
);
