//! Horizontal bars, each of one part or of several that add up.

use maud::{Markup, html};

use super::colour::{FAINT, GRID, INK};
use super::draw::{self, WIDTH, number};
use super::scale::value;
use super::{Column, Key, Sign, Table};
use crate::report::escape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the numbers are, with their unit.
    pub label: String,
    pub bars: Vec<Bar>,
    /// The end of the scale; the longest bar where it is not given.
    pub most: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    pub name: String,
    pub parts: Vec<Part>,
    /// What stands at the right end of its line.
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub name: String,
    pub colour: usize,
    pub value: f64,
}

impl Bar {
    pub fn one(name: &str, colour: usize, value: f64, text: String) -> Bar {
        let part = Part { name: String::new(), colour, value };
        Bar { name: name.into(), parts: vec![part], text }
    }

    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.value.max(0.0)).filter(|value| value.is_finite()).sum()
    }
}

impl Bars {
    pub(super) fn draw(&self) -> (f64, Markup) {
        let longest = self.bars.iter().map(Bar::length).fold(0.0, f64::max);
        let most = self.most.unwrap_or(longest).max(f64::MIN_POSITIVE);
        // Each bar with the lines of its name, the last of which stands right above it.
        let mut rows = Vec::new();
        let mut top = FIRST_PX;
        for bar in &self.bars {
            let lines = draw::lines(&escape::line(&bar.name), NAME_LETTERS, NAME_LINES_MAX);
            let above = top;
            top += lines.len().saturating_sub(1) as f64 * LINE_PX;
            rows.push((bar, lines, above, top));
            top += ROW_PX;
        }
        let drawn = html! {
            text class="f" x="4" y="15" fill=(FAINT) { (escape::line(&self.label)) }
            @for (bar, lines, above, y) in rows {
                @for (line, text) in lines.iter().enumerate() {
                    text class="t" x=(number(LEFT)) fill=(INK)
                        y=(number(above + line as f64 * LINE_PX + 14.0)) { (text) }
                }
                text class="f" x=(number(WIDTH - RIGHT)) y=(number(y + 14.0)) text-anchor="end"
                    fill=(FAINT) { (escape::line(&bar.text)) }
                rect class="track" fill=(GRID) x=(number(LEFT)) y=(number(y + 21.0)) height="12"
                    width=(number(WIDTH - LEFT - RIGHT)) {}
                (self.parts(bar, y + 21.0, most))
            }
        };
        (top + 6.0, drawn)
    }

    fn parts(&self, bar: &Bar, y: f64, most: f64) -> Markup {
        let width = WIDTH - LEFT - RIGHT;
        let mut x = LEFT;
        let mut placed = Vec::new();
        for part in bar.parts.iter().filter(|part| part.value.is_finite() && part.value > 0.0) {
            let length = (part.value / most * width).min(WIDTH - RIGHT - x).max(0.0);
            placed.push((part, x, length));
            x += length;
        }
        html! {
            @for (part, x, length) in placed {
                rect fill=(draw::pattern(part.colour)) x=(number(x)) y=(number(y)) height="12"
                    width=(number(length.max(0.5))) data-value=(value(part.value)) {}
            }
        }
    }

    /// One entry for each name of parts; none where bars have one part without a name.
    pub(super) fn legend(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        for part in self.bars.iter().flat_map(|bar| &bar.parts) {
            let key = Key { sign: Sign::Area(part.colour), text: part.name.clone() };
            if !part.name.is_empty() && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    pub(super) fn table(&self) -> Table {
        let rows = self.bars.iter().flat_map(|bar| {
            bar.parts.iter().map(|part| {
                vec![bar.name.clone(), part.name.clone(), value(part.value), bar.text.clone()]
            })
        });
        Table {
            caption: self.label.clone(),
            columns: vec![
                Column::text("bar"),
                Column::text("part"),
                Column::number("value"),
                Column::text("note"),
            ],
            rows: rows.collect(),
        }
    }
}

const LEFT: f64 = 8.0;
const RIGHT: f64 = 8.0;
const FIRST_PX: f64 = 26.0;
const ROW_PX: f64 = 42.0;
/// Of a line of a name, also where a style sheet makes text larger.
const LINE_PX: f64 = 21.0;
const NAME_LETTERS: usize = 38;
const NAME_LINES_MAX: usize = 3;
