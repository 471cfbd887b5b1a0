//! Timelines: what each of many did from when to when. Kinds of spans differ in their shape
//! too: full, hatched, or an outline.

use maud::{Markup, html};

use super::colour::{FAINT, GRID, INK};
use super::draw::{self, WIDTH, number};
use super::span::Span;
use super::{Axis, Column, Key, Sign, Table};
use crate::report::escape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timelines {
    pub x: Axis,
    /// What each is about: `worker`.
    pub of: String,
    /// What a span is: `shard`.
    pub noun: String,
    pub timelines: Vec<Timeline>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub name: String,
    /// What stands at the right end of its line.
    pub text: String,
    pub spans: Vec<TimeSpan>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TimeSpan {
    pub name: String,
    pub from: f64,
    pub to: f64,
    pub kind: SpanKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    Done,
    Lost,
    GivenBack,
    UnderWay,
}

impl SpanKind {
    pub fn name(self) -> &'static str {
        match self {
            SpanKind::Done => "done",
            SpanKind::Lost => "lost",
            SpanKind::GivenBack => "given back",
            SpanKind::UnderWay => "under way",
        }
    }

    fn colour(self) -> usize {
        match self {
            SpanKind::Done => 0,
            SpanKind::Lost => 1,
            SpanKind::GivenBack => 3,
            SpanKind::UnderWay => 2,
        }
    }
}

impl Timelines {
    pub(super) fn draw(&self) -> (f64, Markup) {
        let all = self.timelines.iter().flat_map(|timeline| &timeline.spans);
        let ends = all.flat_map(|span| [span.from, span.to]);
        let x = Span::of(&self.x, ends, (LEFT, WIDTH - RIGHT), 6);
        let bottom = FIRST_PX + self.timelines.len() as f64 * ROW_PX + 4.0;
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let drawn = html! {
            @for (place, timeline) in self.timelines.iter().enumerate() {
                @let y = FIRST_PX + place as f64 * ROW_PX;
                text class="t" x=(number(LEFT)) y=(number(y + 14.0)) fill=(INK) {
                    (draw::shortened(&escape::line(&timeline.name), NAME_LETTERS))
                }
                text class="f" x=(number(WIDTH - RIGHT)) y=(number(y + 14.0)) text-anchor="end"
                    fill=(FAINT) { (draw::shortened(&escape::line(&timeline.text), TEXT_LETTERS)) }
                rect class="track" fill=(GRID) x=(number(LEFT)) y=(number(y + 21.0)) height="12"
                    width=(number(WIDTH - LEFT - RIGHT)) {}
                @for span in &timeline.spans {
                    @if (span.to - span.from).is_finite() { (one(span, &x, y + 21.0)) }
                }
            }
            g class="ticks-x" {
                @for (at, text) in &x.ticks {
                    @let at = number(x.px(*at));
                    path class="a" stroke=(FAINT) d=(format!("M{at} {}v5", number(bottom))) {}
                    text class="f" x=(at) y=(number(bottom + 24.0)) text-anchor="middle"
                        fill=(FAINT) { (text) }
                }
            }
            text class="f" x=(number(middle)) y=(number(bottom + 46.0)) text-anchor="middle"
                fill=(FAINT) { (escape::line(&self.x.label)) }
        };
        (bottom + 52.0, drawn)
    }

    /// The kinds that there are.
    pub(super) fn legend(&self) -> Vec<Key> {
        let kinds =
            self.timelines.iter().flat_map(|timeline| timeline.spans.iter().map(|span| span.kind));
        let mut kinds: Vec<SpanKind> = kinds.collect();
        kinds.sort();
        let count = |kind: SpanKind| kinds.iter().filter(|other| **other == kind).count();
        let all = [SpanKind::Done, SpanKind::Lost, SpanKind::GivenBack, SpanKind::UnderWay];
        let there = all.into_iter().filter(|kind| count(*kind) > 0);
        there
            .map(|kind| Key {
                sign: Sign::Span(kind),
                text: format!("{} ({})", kind.name(), count(kind)),
            })
            .collect()
    }

    pub(super) fn table(&self) -> Table {
        let rows = self.timelines.iter().flat_map(|timeline| {
            timeline.spans.iter().map(|span| {
                let time = |at: f64| format!("{at:.3}");
                let (name, kind) = (span.name.clone(), span.kind.name().to_string());
                vec![timeline.name.clone(), name, time(span.from), time(span.to), kind]
            })
        });
        let mut rows: Vec<Vec<String>> = rows.collect();
        let more = match rows.len() > TABLE_ROWS_MAX {
            true => format!(": the first {TABLE_ROWS_MAX} of {}", rows.len()),
            false => String::new(),
        };
        rows.truncate(TABLE_ROWS_MAX);
        Table {
            caption: format!("{}{more}", self.x.label),
            columns: vec![
                Column::text(&self.of),
                Column::text(&self.noun),
                Column::number("from"),
                Column::number("until"),
                Column::text("outcome"),
            ],
            rows,
        }
    }
}

fn one(span: &TimeSpan, x: &Span, y: f64) -> Markup {
    let px = |at: f64| x.px(at).clamp(LEFT, WIDTH - RIGHT);
    let (from, to) = (px(span.from), px(span.to));
    // A gap, so that two that follow each other are two.
    let width = (to - from - 0.5).max(0.5);
    shape(span.kind, from, y, width)
}

/// Full, hatched, or an outline: whatever the colours are.
pub(super) fn shape(kind: SpanKind, x: f64, y: f64, width: f64) -> Markup {
    let (fill_class, fill) = draw::fill(kind.colour());
    let (stroke_class, stroke) = draw::stroke(kind.colour());
    let right = x + width;
    let hatch = || -> String {
        let places = (0..HATCHES_MAX).map(|place| x + 2.0 + f64::from(place) * 5.0);
        let there = places.take_while(|at| at + 4.0 <= right);
        there.map(|at| format!("M{} {}l4 -12", number(at - 1.0), number(y + 12.0))).collect()
    };
    let outline = format!(
        "M{} {}H{}V{}H{}z",
        number(x + 0.5),
        number(y + 0.5),
        number((right - 0.5).max(x + 1.0)),
        number(y + 11.5),
        number(x + 0.5)
    );
    match kind {
        SpanKind::Done => html! {
            rect class=(fill_class) fill=(fill) x=(number(x)) y=(number(y)) height="12"
                width=(number(width)) {}
        },
        SpanKind::Lost => html! {
            path class=(format!("{stroke_class} paper")) stroke=(stroke) stroke-width="1.5"
                fill="#fff" d=(outline) {}
            path class=(stroke_class) stroke=(stroke) stroke-width="1.5" fill="none" d=(hatch()) {}
        },
        SpanKind::GivenBack => html! {
            path class=(format!("{stroke_class} paper")) stroke=(stroke) stroke-width="1.5"
                fill="#fff" d=(outline) {}
        },
        SpanKind::UnderWay => html! {
            rect class=(fill_class) fill=(fill) x=(number(x)) y=(number(y + 3.0)) height="6"
                width=(number(width)) {}
        },
    }
}

const LEFT: f64 = 12.0;
const RIGHT: f64 = 12.0;
const FIRST_PX: f64 = 4.0;
const ROW_PX: f64 = 42.0;
const NAME_LETTERS: usize = 26;
const TEXT_LETTERS: usize = 20;
const HATCHES_MAX: u32 = 120;
const TABLE_ROWS_MAX: usize = 300;
