//! Charts as values, and as still SVG beside the table of their numbers: no script, no font, no
//! picture from elsewhere. Colours are attributes, which a style sheet may replace: a page without
//! its style sheet shows them too.

mod bars;
pub mod colour;
mod draw;
mod heat;
pub mod scale;
mod span;
pub mod thin;
mod timelines;
mod xy;

use maud::{Markup, PreEscaped, html};

pub use self::bars::{Bar, Bars, Part};
pub use self::heat::{Heat, Spots};
pub use self::timelines::{SpanKind, TimeSpan, Timeline, Timelines};
pub use self::xy::{Axis, Drawn, Mark, Marks, Series, Ticks, Xy};
use crate::report::escape;

/// A chart with what a reader needs beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Of letters, digits and `-`: the name of its file, and of its element in a page.
    pub name: String,
    pub title: String,
    /// What is shown and how to read it, in a sentence or two.
    pub about: String,
    pub chart: Chart,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    Xy(Xy),
    Bars(Bars),
    Heat(Heat),
    Timelines(Timelines),
}

/// Numbers as text, for readers who do not see the chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub align: Align,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

impl Column {
    pub fn text(name: &str) -> Column {
        Column { name: name.into(), align: Align::Left }
    }

    pub fn number(name: &str) -> Column {
        Column { name: name.into(), align: Align::Right }
    }
}

/// One entry of a legend: how something is drawn, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub sign: Sign,
    pub text: String,
}

impl Key {
    /// Its sign; the text beside it says what it is.
    pub(crate) fn drawing(&self) -> Markup {
        html! { svg viewBox="0 0 20 12" aria-hidden="true" { (draw::sign(self.sign)) } }
    }
}

/// How the sign of a legend is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Line(usize),
    Area(usize),
    Dot(usize),
    /// The edge of a cell.
    Frame,
    Mark(Mark),
    Span(SpanKind),
}

impl Figure {
    /// The drawing, for a page that has a style sheet and shows the legend below.
    pub fn drawing(&self) -> Markup {
        let (height, inner) = self.inner();
        self.svg(height, html! { (inner) })
    }

    /// The drawing as a file of its own, with its title, its legend and its colours.
    pub fn file(&self) -> String {
        let (height, inner) = self.inner();
        let legend = self.legend();
        let (rows, below) = draw::legend(&legend, height + TITLE_PX);
        let style = PreEscaped(format!("{}{ALONE}", colour::style()));
        let whole = html! {
            style { (style) }
            (draw::patterns())
            rect class="paper" width=(draw::WIDTH) height="100%" fill="#fff" {}
            text class="t title" x="8" y="20" fill=(colour::INK) { (escape::line(&self.title)) }
            g transform=(format!("translate(0 {TITLE_PX})")) { (inner) }
            (below)
        };
        let svg = self.svg(height + TITLE_PX + rows, whole);
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", svg.into_string())
    }

    fn inner(&self) -> (f64, Markup) {
        match &self.chart {
            Chart::Xy(chart) => chart.draw(),
            Chart::Bars(chart) => chart.draw(),
            Chart::Heat(chart) => chart.draw(),
            Chart::Timelines(chart) => chart.draw(),
        }
    }

    fn svg(&self, height: f64, inner: Markup) -> Markup {
        let (title, about) = (escape::line(&self.title), escape::line(&self.about));
        let (title_id, about_id) = (format!("{}-title", self.name), format!("{}-about", self.name));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" role="img"
                viewBox=(format!("0 0 {} {}", draw::WIDTH, draw::number(height)))
                aria-labelledby=(format!("{title_id} {about_id}"))
                font-family="system-ui, sans-serif" font-size="13" {
                title id=(title_id) { (title) }
                desc id=(about_id) { (about) }
                (inner)
            }
        }
    }

    /// True if its label alone does not say what is drawn.
    pub(crate) fn needs_legend(&self) -> bool {
        let least = if matches!(self.chart, Chart::Heat(_)) { 1 } else { 2 };
        self.legend().len() >= least
    }

    /// The entries of its legend; none where one series speaks for itself.
    pub(crate) fn legend(&self) -> Vec<Key> {
        match &self.chart {
            Chart::Xy(chart) => chart.legend(),
            Chart::Bars(chart) => chart.legend(),
            Chart::Heat(chart) => chart.legend(),
            Chart::Timelines(chart) => chart.legend(),
        }
    }

    /// Its numbers: first what each series is made of, then values.
    pub fn tables(&self) -> Vec<Table> {
        match &self.chart {
            Chart::Xy(chart) => chart.tables(),
            Chart::Bars(chart) => vec![chart.table()],
            Chart::Heat(chart) => chart.tables(),
            Chart::Timelines(chart) => vec![chart.table()],
        }
    }
}

/// What the areas of drawings are filled with: once in each page that shows drawings.
pub(crate) fn fills() -> Markup {
    html! {
        svg width="0" height="0" aria-hidden="true" focusable="false" class="fills" {
            (draw::patterns())
        }
    }
}

/// Of the title above a drawing that stands alone.
const TITLE_PX: f64 = 30.0;
const ALONE: &str = ".title{font-size:16px;font-weight:600}";

#[cfg(test)]
mod tests;
