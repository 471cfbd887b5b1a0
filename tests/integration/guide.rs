//! Every block of commands in README and guide is run, page by page and in the order of the page.
//! A page has a scene of its own: this host with the files that the page names, another one that
//! `ssh` reaches, and a store (`guide/scene.rs`). What is run in another way than it is typed, or
//! not at all, is in the tables of `guide/tables.rs`.

mod records;
mod scene;
mod slurm;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use scene::{Line, Scene};
use tables::{BEFORE, OTHERWISE, Otherwise, PARSED, RECORDED, SHORTER, prepare};

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        $(#[test] fn $test() { play($page); })*
        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    readme: "README.md",
    bbcp: "bbcp.md",
    campaigns: "campaigns.md",
    compression: "compression.md",
    configuration: "configuration.md",
    copying: "copying.md",
    cost_model: "cost-model.md",
    json_and_results: "json-and-results.md",
    monitoring: "monitoring.md",
    net_tests: "net-tests.md",
    reports: "reports.md",
    resume: "resume.md",
    scripting: "scripting.md",
    security: "security.md",
    slurm: "slurm.md",
    spread: "spread.md",
    stores: "stores.md",
    why_is_it_slow: "why-is-it-slow.md",
}

/// Runs the lines of a page, and compares the exit code of each.
fn play(page: &str) {
    let lines = lines_of(page);
    assert!(!lines.is_empty(), "{page} has no commands");
    let rows: Vec<Line> = lines.into_iter().filter(|line| !is_only_parsed(page, line)).collect();
    let lines: Vec<Line> = rows.into_iter().map(|line| as_run(page, line)).collect();
    let (ended, hosts) = if page == "slurm.md" {
        slurm::play(prepare(page), &lines)
    } else {
        let scene = Scene::new(prepare(page), lines.iter().any(|line| line.name.contains("s3://")));
        if page == "README.md" {
            scene.far_host_is_bare();
        }
        if RECORDED.contains(&page) {
            // A page of a host is of another one.
            let measured = if page == "reports.md" { "dtn2" } else { "dtn1" };
            records::fill(&scene.results(), measured);
        }
        scene.play(&lines)
    };
    let mut wrong = Vec::new();
    for (line, ended) in lines.iter().zip(&ended) {
        let expected = otherwise(page, &line.name).map_or(&[0][..], |other| other.codes);
        if !ended.code.is_some_and(|code| expected.contains(&code)) {
            let (number, run, code) = (line.number, &line.run, ended.code);
            let told = format!("{page}:{number}: {run}\nexit code {code:?}, not {expected:?}");
            wrong.push(format!("{told}\n{}", ended.output));
        }
    }
    assert!(wrong.is_empty(), "{} lines\n{}\n{hosts}", wrong.len(), wrong.join("\n"));
}

/// What is typed is run with less data, or for a shorter time, where the table says so.
fn as_run(page: &str, mut line: Line) -> Line {
    let rows = SHORTER.iter().filter(|row| row.page.is_none_or(|only| only == page));
    let (whole, parts): (Vec<_>, Vec<_>) = rows.partition(|row| row.typed.starts_with("datapump "));
    line.run = match whole.iter().find(|row| row.typed == line.run) {
        Some(row) => row.run.to_string(),
        None => parts.iter().fold(line.run, |run, row| run.replace(row.typed, row.run)),
    };
    let before = BEFORE.iter().filter(|row| row.page == page && row.line == line.name);
    line.before = before.map(|row| row.shell).collect::<Vec<_>>().join("\n");
    line
}

fn is_only_parsed(page: &str, line: &Line) -> bool {
    PARSED.iter().any(|row| row.page == page && row.line == line.name)
}

fn otherwise(page: &str, line: &str) -> Option<&'static Otherwise> {
    OTHERWISE.iter().find(|row| row.page == page && row.line == line)
}

fn path_of(page: &str) -> PathBuf {
    let folder = if page == "README.md" { "" } else { "docs/guide" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(page)
}

fn text_of(page: &str) -> String {
    fs::read_to_string(path_of(page)).unwrap()
}

/// The pages of the guide, and README.
fn all_pages() -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide");
    let names = fs::read_dir(guide).unwrap().map(|entry| entry.unwrap().file_name());
    let mut pages: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    pages.retain(|name| name.ends_with(".md"));
    pages.push("README.md".into());
    pages
}

/// The commands of a page: each line of a block of `sh`, each line of one of `console` with a
/// prompt, and a script of `bash` as a whole.
fn lines_of(page: &str) -> Vec<Line> {
    let text = text_of(page);
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |number, run: &str| {
        let before = lines.iter().filter(|line| line.run == run).count();
        let name = if before == 0 { run.into() } else { format!("{run} ({})", before + 1) };
        lines.push(Line { number, name, run: run.into(), before: String::new() });
    };
    let mut block: Option<&str> = None;
    let mut script = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        match block {
            None => block = line.strip_prefix("```"),
            Some("bash") if line == "```" => {
                add(number, &format!("bash <<'END'\n{script}END"));
                (block, script) = (None, String::new());
            }
            Some(_) if line == "```" => block = None,
            Some("sh") => add(number, line),
            Some("bash") => script += &format!("{line}\n"),
            Some("console") => line.strip_prefix("$ ").into_iter().for_each(|run| add(number, run)),
            Some(_) => {}
        }
    }
    lines
}

/// Each page that has commands is played; and each row of a table is of a line that is there, with
/// the words beside it that say what the row says.
#[test]
fn tables_are_of_what_is_there() {
    for page in all_pages() {
        let is_played = PAGES.contains(&page.as_str());
        assert_eq!(is_played, !lines_of(&page).is_empty(), "{page} has commands and no test");
    }
    let of = |page: &str| lines_of(page).into_iter().map(|line| line.name).collect::<Vec<_>>();
    for row in PARSED {
        assert!(of(row.page).contains(&row.line.to_string()), "{row:?} is of no line");
        assert!(!row.because.is_empty(), "{row:?}");
    }
    for row in OTHERWISE {
        assert!(of(row.page).contains(&row.line.to_string()), "{row:?} is of no line");
        let text = text_of(row.page).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(row.words), "{row:?}: the page does not say so");
    }
    for row in BEFORE {
        assert!(of(row.page).contains(&row.line.to_string()), "{row:?} is of no line");
    }
    for row in SHORTER {
        let pages = row.page.map_or_else(all_pages, |page| vec![page.into()]);
        let is_it = |line: &String| match row.typed.starts_with("datapump ") {
            true => line == row.typed,
            false => line.contains(row.typed),
        };
        let is_there = pages.iter().flat_map(|page| of(page)).any(|line| is_it(&line));
        assert!(is_there, "{row:?} is of no line");
    }
}
