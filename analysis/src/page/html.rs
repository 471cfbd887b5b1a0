//! A page as HTML. Every text passes the template engine, which escapes it, and before it
//! `escape::line`, which spells out what would hide or reverse text.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Block, Page, Section};
use super::{style, words};
use crate::plot::{Align, Column, Figure, Table, fills};
use crate::report::escape;

/// No other script than ours, no picture, no connection: whatever a name in a page is made of.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
         script-src 'sha256-{ZOOM_SHA256}'"
    )
}

/// What a page is whole without: values where a reader points, and zoom.
const ZOOM: &str = include_str!("zoom.js");
/// As a browser computes it of that text: `openssl dgst -sha256 -binary zoom.js | base64`.
pub(super) const ZOOM_SHA256: &str = "aaTlSCkod4B7gYks/vWwnrl40fzjTlN0O7T7NcOL6Oo=";

pub(super) fn page(page: &Page) -> String {
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&page.title, Some(&policy())))
            body {
                (body(page))
                footer {
                    "Made by datapump " (env!("CARGO_PKG_VERSION")) ". One file: it loads nothing. "
                    "Below each chart, “Numbers” has its values as a table. " (KEYS)
                }
                script { (PreEscaped(ZOOM)) }
            }
        }
    };
    whole.into_string()
}

/// A page whose body a script replaces. Its policy is sent in front of it.
pub(super) fn live(title: &str, state: &str, body: &str, script: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, None))
            body {
                section aria-label="State of the run" {
                    p class="state" { "This run is: " span id="state" role="status" { (state) } }
                }
                div id="page" { (PreEscaped(body)) }
                footer {
                    "Served by datapump " (env!("CARGO_PKG_VERSION")) " to this host alone, until "
                    "the run has ended. Below each chart, “Numbers” has its values as a table. "
                    (KEYS)
                }
                script { (PreEscaped(ZOOM)) }
                script { (PreEscaped(script)) }
            }
        }
    }
}

fn head(title: &str, policy: Option<&str>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            @if let Some(policy) = policy {
                meta http-equiv="Content-Security-Policy" content=(policy);
            }
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="referrer" content="no-referrer";
            title { (shown(title)) }
            link rel="icon" href="data:,";
            style { (PreEscaped(style::sheet())) }
        }
    }
}

/// All that is said by a page.
pub(super) fn body(page: &Page) -> Markup {
    let words = &words::section(page);
    html! {
        (fills())
        header {
            h1 { (shown(&page.title)) }
            p class="subtitle" { (shown(&page.subtitle)) }
        }
        nav aria-label="Sections" {
            ul {
                @for section in page.sections.iter().chain(words) {
                    li { a href=(format!("#{}", section.id)) { (shown(&section.heading)) } }
                }
            }
        }
        main {
            @for part in page.sections.iter().chain(words) { (section(part)) }
        }
    }
}

fn section(section: &Section) -> Markup {
    let heading = format!("{}-heading", section.id);
    html! {
        section id=(section.id) aria-labelledby=(heading) {
            h2 id=(heading) { (shown(&section.heading)) }
            @for part in &section.blocks { (block(part)) }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Lead(text) => html! { p class="lead" { (prose(text)) } },
        Block::Text(text) => html! { p { (prose(text)) } },
        Block::List(list) => html! {
            ol { @for text in list { li { (prose(text)) } } }
        },
        Block::Facts(facts) => html! {
            dl {
                @for (name, value) in facts {
                    div { dt { (broken(name)) } dd { (broken(value)) } }
                }
            }
        },
        Block::Table(table) => rows(table),
        Block::Figures(figures) => html! {
            div class="figures" { @for one in figures { (figure(one)) } }
        },
        Block::Command(text) => html! {
            pre tabindex="0" { code { (shown(text)) } }
        },
    }
}

fn figure(figure: &Figure) -> Markup {
    let legend = figure.legend();
    html! {
        figure id=(figure.name) {
            h3 { (shown(&figure.title)) }
            (figure.drawing())
            @if figure.needs_legend() {
                ul class="legend" {
                    @for key in &legend { li { (key.drawing()) (shown(&key.text)) } }
                }
            }
            figcaption { (shown(&figure.about)) }
            details {
                summary { "Numbers: " (shown(&figure.title)) }
                @for table in figure.tables() { (rows(&table)) }
            }
        }
    }
}

/// A table in a box that scrolls by itself, also by keyboard, where it is wider than the page.
fn rows(table: &Table) -> Markup {
    let align = |column: Option<&Column>| {
        column.filter(|column| column.align == Align::Right).map(|_| "number")
    };
    let class = |column: Option<&Column>, cell: &str| {
        align(column).or((cell.chars().count() > SHORT_CELL).then_some("long"))
    };
    let scrolls = table.rows.len() > ROWS_SHOWN;
    html! {
        div class="scroll" tabindex="0" role="group" aria-label=(shown(&table.caption)) {
            table {
                caption {
                    (shown(&table.caption))
                    @if scrolls { " (" (table.rows.len()) " rows: scroll)" }
                }
                thead {
                    tr {
                        @for column in &table.columns {
                            th scope="col" class=[align(Some(column))] { (shown(&column.name)) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                td class=[class(table.columns.get(at), cell)] { (broken(cell)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A text whose options (`--depth-source`) stay whole: a browser would break them at a dash.
fn prose(text: &str) -> Markup {
    let shown = shown(text);
    html! {
        @for word in shown.split_inclusive(' ') {
            @if word.contains("--") { span class="o" { (word.trim_end()) } " " } @else { (word) }
        }
    }
}

/// A text whose long names (`net.ipv4.tcp_rmem`, paths) may break behind a mark, not in a word.
fn broken(text: &str) -> Markup {
    let shown = shown(text);
    html! {
        @for word in shown.split_inclusive(' ') {
            @if word.len() < LONG_WORD { (word) } @else {
                @for part in word.split_inclusive(MARKS) {
                    (part) @if part.ends_with(MARKS) { wbr; }
                }
            }
        }
    }
}

const KEYS: &str = "Where scripts run: point at a chart over time for its values, drag over \
                    it to zoom, double-click to see all of it; with the keyboard \
                    arrows, + and −, Escape.";
/// A table shows about so many rows at once.
const ROWS_SHOWN: usize = 12;
const MARKS: [char; 4] = ['.', '_', '/', '='];
/// A cell of so many letters stays in one line; a longer one has a width, in which it breaks.
const SHORT_CELL: usize = 24;
/// A shorter word, such as a number with its unit, stays whole.
const LONG_WORD: usize = 14;

fn shown(text: &str) -> String {
    escape::line(text)
}
