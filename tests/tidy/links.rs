//! Links between documents: the file is there, and so is the heading.

use std::path::Path;

use crate::{Finding, Page};

pub(crate) fn links(pages: &[Page]) -> Vec<Finding> {
    let documents = pages.iter().filter(|page| page.path.ends_with(".md"));
    documents
        .flat_map(|page| {
            let targets = targets(&page.text);
            targets.filter_map(|(line, target)| {
                let why = broken(page, target, pages)?;
                Some(format!("{}:{line}: link to '{target}': {why}", page.path))
            })
        })
        .collect()
}

/// The target of each link, with its line. What is in a block of code is no link.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = (1..).zip(text.lines()).filter(move |(_, line)| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    });
    lines.flat_map(|(number, line)| {
        let after = line.split("](").skip(1);
        after.filter_map(move |rest| Some((number, rest.split(')').next()?)))
    })
}

/// Why a link leads nowhere; `None` where it leads somewhere, or to another place than this
/// repository.
fn broken(page: &Page, target: &str, pages: &[Page]) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.path.clone(),
        file => resolved(Path::new(&page.path).parent()?.join(file).to_str()?),
    };
    let Some(found) = pages.iter().find(|page| page.path == path) else {
        let is_there = Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).exists();
        return (!is_there).then_some("there is no such file");
    };
    let has_heading = || headings(&found.text).any(|slug| slug == heading);
    (!heading.is_empty() && !has_heading()).then_some("there is no such heading")
}

/// A path without `.` and `..`.
fn resolved(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Headings as a link names them: lower case, dashes for blanks, no other marks.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}
