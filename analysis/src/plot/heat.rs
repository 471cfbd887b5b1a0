//! A table as colours: a value for each row and column.

use maud::{Markup, html};

use super::colour::{self, FAINT, GRID, PAPER, ink_on, sequential};
use super::draw::{WIDTH, number, shortened};
use super::scale::value;
use super::{Column, Key, Mark, Sign, Table};
use crate::report::escape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// What the values are, with their unit; what rows and columns are.
    pub label: String,
    pub row_label: String,
    pub column_label: String,
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// For each row, a value for each column; `None` where there is none.
    pub values: Vec<Vec<Option<f64>>>,
    /// The row and column of the cell that a reader looks for, with what it is.
    pub best: Option<(usize, usize, String)>,
    /// What happened in a row.
    pub spots: Vec<Spots>,
}

/// Moments or spans of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Spots {
    pub name: String,
    pub mark: Mark,
    /// The row, and from which column to which: 1.5 is the middle of the second one.
    pub at: Vec<(usize, f64, f64)>,
}

impl Heat {
    fn range(&self) -> (f64, f64) {
        let known = || self.values.iter().flatten().flatten().filter(|value| value.is_finite());
        let high = known().copied().fold(0.0, f64::max);
        (known().copied().fold(high, f64::min), high)
    }

    pub(super) fn draw(&self) -> (f64, Markup) {
        let width = (WIDTH - LEFT - RIGHT) / self.columns.len().max(1) as f64;
        let height = (180.0 / self.rows.len().max(1) as f64).clamp(6.0, 24.0);
        let bottom = TOP + height * self.rows.len() as f64;
        let (low, high) = self.range();
        let share = |value: f64| (value - low) / (high - low).max(f64::MIN_POSITIVE);
        let has_text = width >= TEXT_WIDTH_MIN && height >= TEXT_HEIGHT_MIN;
        let every = |count: usize, px: f64, least: f64| {
            (least / px).ceil().max(1.0).min(count.max(1) as f64) as usize
        };
        let row_step = every(self.rows.len(), height, 18.0);
        let widest = self.columns.iter().map(|name| name.chars().count()).max().unwrap_or(1);
        let column_step = every(self.columns.len(), width, widest as f64 * 9.5 + 6.0);
        let drawn = html! {
            (self.scale(low, high))
            @for (row, (name, values)) in self.rows.iter().zip(&self.values).enumerate() {
                @let y = TOP + row as f64 * height;
                @if row % row_step == 0 {
                    text class="f" x=(number(LEFT - 6.0)) y=(number(y + height / 2.0 + 4.5))
                        text-anchor="end" fill=(FAINT) { (shortened(&escape::line(name), 12)) }
                }
                @for (column, cell) in values.iter().enumerate() {
                    @let x = LEFT + column as f64 * width;
                    @if let Some(known) = cell {
                        rect fill=(sequential(share(*known))) x=(number(x)) y=(number(y))
                            width=(number(width - GAP)) height=(number(height - GAP))
                            data-value=(value(*known)) {}
                        @if has_text {
                            text class="cell" x=(number(x + width / 2.0)) font-size="10"
                                y=(number(y + height / 2.0 + 3.5)) text-anchor="middle"
                                fill=(ink_on(share(*known))) { (value(*known)) }
                        }
                    } @else {
                        rect class="g" fill="none" stroke=(GRID) x=(number(x + 0.5))
                            y=(number(y + 0.5)) width=(number((width - GAP - 1.0).max(0.5)))
                            height=(number((height - GAP - 1.0).max(0.5))) {}
                    }
                }
            }
            (self.marked(width, height))
            @for (column, name) in self.columns.iter().enumerate().step_by(column_step) {
                @let x = LEFT + (column as f64 + 0.5) * width;
                text class="f" x=(number(x)) y=(number(bottom + 17.0)) text-anchor="middle"
                    fill=(FAINT) { (shortened(&escape::line(name), 10)) }
            }
            text class="f" x="4" y=(number(TOP - 8.0)) fill=(FAINT) {
                (escape::line(&self.row_label))
            }
            text class="f" x=(number((LEFT + WIDTH - RIGHT) / 2.0)) y=(number(bottom + 38.0))
                text-anchor="middle" fill=(FAINT) { (escape::line(&self.column_label)) }
        };
        (bottom + 46.0, drawn)
    }

    /// What the colours mean.
    fn scale(&self, low: f64, high: f64) -> Markup {
        let step = 12.0;
        let left = WIDTH - RIGHT - 11.0 * step - 64.0;
        html! {
            text class="f" x="4" y="15" fill=(FAINT) { (escape::line(&self.label)) }
            text class="f" x=(number(left - 5.0)) y="15" text-anchor="end" fill=(FAINT) {
                (value(low))
            }
            @for tenth in 0..11 {
                rect fill=(sequential(f64::from(tenth) / 10.0)) y="4" height="12"
                    x=(number(left + f64::from(tenth) * step)) width=(number(step)) {}
            }
            text class="f" x=(number(left + 11.0 * step + 5.0)) y="15" fill=(FAINT) {
                (value(high))
            }
        }
    }

    /// The best cell in a frame of paper and ink, and what happened in each row.
    fn marked(&self, width: f64, height: f64) -> Markup {
        let x = |column: f64| LEFT + column.clamp(0.0, self.columns.len() as f64) * width;
        let y = |row: usize| TOP + row as f64 * height;
        let side = (height * 0.45).clamp(3.0, 8.0);
        let path = |mark: Mark, (row, from, to): &(usize, f64, f64)| {
            let (left, top, bottom) = (x(*from), y(*row), y(*row) + height - GAP);
            let half = side / 2.0;
            match mark {
                Mark::Down => format!(
                    "M{} {}h{}l-{} {}z",
                    number(left - half),
                    number(top),
                    number(side),
                    number(half),
                    number(side)
                ),
                Mark::Up => format!(
                    "M{} {}h{}l-{} -{}z",
                    number(left - half),
                    number(bottom),
                    number(side),
                    number(half),
                    number(side)
                ),
                Mark::Span | Mark::Level => format!(
                    "M{} {}H{}",
                    number(left),
                    number((top + bottom) / 2.0),
                    number(x(*to).max(left + 2.0))
                ),
            }
        };
        let drawn = self.spots.iter().map(|spots| {
            // However many there are in a cell, one is drawn.
            let mut placed: Vec<(usize, i64)> = Vec::new();
            let at = spots.at.iter().filter(|(row, from, _)| {
                let place = (*row, *from as i64);
                let is_new = placed.last() != Some(&place);
                placed.push(place);
                is_new
            });
            let path: String = at.map(|one| path(spots.mark, one)).collect();
            (spots.mark, spots.at.len(), escape::line(&spots.name), path)
        });
        html! {
            @for (mark, count, name, path) in drawn {
                @let (fill, stroke) = match mark {
                    Mark::Down => (colour::LIGHT[1], PAPER),
                    Mark::Up => (colour::LIGHT[2], PAPER),
                    Mark::Span | Mark::Level => ("none", PAPER),
                };
                @let width = if fill == "none" { "2" } else { "0.8" };
                path fill=(fill) stroke=(stroke) stroke-width=(width)
                    data-spots=(count) data-name=(name) d=(path) {}
            }
            @if let Some((row, column, _)) = &self.best {
                @let (left, top) = (number(x(*column as f64)), number(y(*row)));
                @for (stroke, thick) in [(PAPER, "4"), ("#000", "2")] {
                    rect data-best="" x=(left) y=(top) width=(number(width - GAP)) fill="none"
                        height=(number(height - GAP)) stroke=(stroke) stroke-width=(thick) {}
                }
            }
        }
    }

    pub(super) fn legend(&self) -> Vec<Key> {
        let best = self.best.iter().map(|(.., text)| Key { sign: Sign::Frame, text: text.clone() });
        let named = |spots: &Spots| Key {
            sign: Sign::Mark(spots.mark),
            text: format!("{} ({})", spots.name, spots.at.len()),
        };
        best.chain(self.spots.iter().filter(|spots| !spots.at.is_empty()).map(named)).collect()
    }

    /// The values, and what happened in which row.
    pub(super) fn tables(&self) -> Vec<Table> {
        let listed = self.spots.iter().filter(|spots| !spots.at.is_empty());
        let of = |spots: &Spots| {
            let place = |(row, from, _): &(usize, f64, f64)| {
                let name = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
                vec![name(&self.rows, *row), name(&self.columns, *from as usize)]
            };
            Table {
                caption: format!("{}: {}", spots.name, spots.at.len()),
                columns: vec![Column::text(&self.row_label), Column::number(&self.column_label)],
                rows: spots.at.iter().take(SPOTS_MAX).map(place).collect(),
            }
        };
        std::iter::once(self.table()).chain(listed.map(of)).collect()
    }

    fn table(&self) -> Table {
        let mut columns = vec![Column::text(&self.row_label)];
        columns.extend(self.columns.iter().map(|name| Column::number(name)));
        let row = |(name, values): (&String, &Vec<Option<f64>>)| {
            let cells = values.iter().map(|cell| cell.map_or("-".into(), value));
            std::iter::once(name.clone()).chain(cells).collect()
        };
        let best = self.best.as_ref().map_or(String::new(), |(.., text)| format!("; {text}"));
        Table {
            caption: format!(
                "{}, by {} and {}{best}",
                self.label, self.row_label, self.column_label
            ),
            columns,
            rows: self.rows.iter().zip(&self.values).map(row).collect(),
        }
    }
}

const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 50.0;
const GAP: f64 = 1.0;
/// Rows of a table of what happened.
const SPOTS_MAX: usize = 60;
const TEXT_WIDTH_MIN: f64 = 27.0;
const TEXT_HEIGHT_MIN: f64 = 15.0;
