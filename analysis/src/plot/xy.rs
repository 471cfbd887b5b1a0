//! Values over time, or over anything else that has an order.

use maud::{Markup, html};

use super::colour::{FAINT, GRID, INK};
use super::draw::{self, Path, WIDTH, number};
use super::scale::{round_up, value};
use super::span::Span;
use super::thin::{POINTS_MAX, envelope};
use super::{Column, Key, Sign, Table};
use crate::report::escape;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Xy {
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub marks: Vec<Marks>,
}

/// An axis with what its numbers are, with their unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    pub label: String,
    pub ticks: Ticks,
    /// It has at least this range, so that charts beside each other have the same.
    pub holds: Vec<f64>,
    pub is_log: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Ticks {
    /// Round numbers.
    #[default]
    Round,
    /// At these values, with these texts.
    At(Vec<(f64, String)>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub colour: usize,
    pub drawn: Drawn,
    /// In the order of x. A y that is not a number is a gap.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper limit of each point, where there are intervals.
    pub limits: Vec<(f64, f64)>,
    /// The number of samples that the points are made of, where it is not their own.
    pub samples: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Drawn {
    Line,
    /// A value holds until the next point.
    Steps,
    Dots,
    /// Steps that are filled down to these values, one for each point.
    Area(Vec<f64>),
    /// The same, paler: a range behind a line.
    Range(Vec<f64>),
}

/// Moments or spans of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    pub name: String,
    pub mark: Mark,
    /// From where to where; for a level its height, twice.
    pub at: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A span of time, over the whole height.
    Span,
    /// A moment, at the top or at the bottom.
    Down,
    Up,
    /// A height, over the whole width.
    Level,
}

impl Axis {
    pub fn of(label: &str) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// Its label as it is drawn. Equal distances are equal factors on a logarithmic axis, which a
    /// reader must be told.
    fn named(&self) -> String {
        let label = escape::line(&self.label);
        if self.is_log { format!("{label} (log scale)") } else { label }
    }

    /// With zero, where bars and areas begin.
    pub fn from_zero(label: &str) -> Axis {
        Axis { holds: vec![0.0], ..Axis::of(label) }
    }
}

impl Series {
    pub fn line(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Series {
        let (name, limits) = (name.to_string(), Vec::new());
        Series { name, colour, drawn: Drawn::Line, points, limits, samples: None }
    }

    pub fn steps(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Series {
        Series { drawn: Drawn::Steps, ..Series::line(name, colour, points) }
    }

    pub fn dots(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Series {
        Series { drawn: Drawn::Dots, ..Series::line(name, colour, points) }
    }

    /// `points` are the upper edges, `below` the lower ones.
    pub fn area(name: &str, colour: usize, points: Vec<(f64, f64)>, below: Vec<f64>) -> Series {
        Series { drawn: Drawn::Area(below), ..Series::line(name, colour, points) }
    }

    fn is_one_by_one(&self) -> bool {
        matches!(self.drawn, Drawn::Area(_) | Drawn::Range(_)) || !self.limits.is_empty()
    }

    /// What a drawing has of it. What has no place on the axis is a gap.
    fn thinned(&self, y: &Axis, most: usize) -> Vec<(f64, f64)> {
        let placed = |y_at: f64| y_at.is_finite() && (!y.is_log || y_at > 0.0);
        let there = self.points.iter().filter(|point| point.0.is_finite());
        let points: Vec<(f64, f64)> =
            there.map(|(x, y)| (*x, if placed(*y) { *y } else { f64::NAN })).collect();
        match self.is_one_by_one() {
            true => points,
            false => envelope(&points, most),
        }
    }

    /// Points that are drawn: gaps are not.
    fn drawn(&self, points: &[(f64, f64)]) -> usize {
        match self.drawn {
            Drawn::Area(_) | Drawn::Range(_) => points.len(),
            _ => points.iter().filter(|point| !point.1.is_nan()).count(),
        }
    }

    fn key(&self) -> Key {
        let sign = match self.drawn {
            Drawn::Line | Drawn::Steps => Sign::Line(self.colour),
            Drawn::Dots => Sign::Dot(self.colour),
            Drawn::Area(_) | Drawn::Range(_) => Sign::Area(self.colour),
        };
        Key { sign, text: self.name.clone() }
    }
}

impl Xy {
    /// Series share what a page has space for.
    fn points_each(&self) -> usize {
        (CHART_POINTS_MAX / self.series.len().max(1)).clamp(64, POINTS_MAX)
    }

    pub(super) fn draw(&self) -> (f64, Markup) {
        let plane = Plane::of(self);
        let most = self.points_each();
        let is_plain = |axis: &Axis| axis.ticks == Ticks::Round && !axis.is_log;
        let scales = (is_plain(&self.x) && is_plain(&self.y)).then(|| plane.scales());
        let drawn = html! {
            g data-plane=[scales] {
                (plane.frame(self))
                @for marks in self.marks.iter().filter(|marks| marks.mark == Mark::Span) {
                    (plane.marks(marks))
                }
                @for series in &self.series {
                    (plane.series(series, &series.thinned(&self.y, most)))
                }
                @for marks in self.marks.iter().filter(|marks| marks.mark != Mark::Span) {
                    (plane.marks(marks))
                }
            }
        };
        (HEIGHT, drawn)
    }

    pub(super) fn legend(&self) -> Vec<Key> {
        let named = |marks: &Marks| Key {
            sign: Sign::Mark(marks.mark),
            text: match marks.mark {
                Mark::Level => marks.name.clone(),
                _ => format!("{} ({})", marks.name, marks.at.len()),
            },
        };
        let marks = self.marks.iter().filter(|marks| !marks.at.is_empty());
        self.series.iter().map(Series::key).chain(marks.map(named)).collect()
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.summary()];
        tables.extend(self.values());
        let listed = self.marks.iter().filter(|marks| !marks.at.is_empty());
        tables.extend(listed.filter(|marks| marks.mark != Mark::Level).map(|m| self.marked(m)));
        tables
    }

    /// Each series: how many samples it is made of, how many points are drawn, and its range.
    fn summary(&self) -> Table {
        let most = self.points_each();
        let row = |series: &Series| {
            let known = series.points.iter().map(|point| point.1).filter(|y| !y.is_nan());
            let range = Range::of(known.collect());
            let text = |of: fn(&Range) -> f64| {
                range.as_ref().map_or("-".to_string(), |range| value(of(range)))
            };
            vec![
                series.name.clone(),
                series.samples.unwrap_or(series.points.len()).to_string(),
                series.drawn(&series.thinned(&self.y, most)).to_string(),
                text(|range| range.least),
                text(|range| range.median),
                text(|range| range.most),
            ]
        };
        let number = Column::number;
        Table {
            caption: format!("Series, in {}", self.y.label),
            columns: vec![
                Column::text("series"),
                number("samples"),
                number("points drawn"),
                number("least"),
                number("median"),
                number("most"),
            ],
            rows: self.series.iter().map(row).collect(),
        }
    }

    /// Values at some x: all of them where they are few.
    fn values(&self) -> Option<Table> {
        let longest = self.series.iter().max_by_key(|series| series.points.len())?;
        let step = longest.points.len().div_ceil(TABLE_ROWS_MAX).max(1);
        let places: Vec<f64> = longest.points.iter().step_by(step).map(|point| point.0).collect();
        let texts = self.x_texts(&places);
        let row = |(x, text): (&f64, String)| {
            let cells = self.series.iter().map(|series| at(series, *x));
            std::iter::once(text).chain(cells).collect()
        };
        let rows = places.iter().zip(texts).map(row).collect();
        let names = self.series.iter().map(|series| Column::number(&series.name));
        let caption = match step {
            1 => format!("Values, in {}", self.y.label),
            _ => format!("Values, in {}: one of {step} points", self.y.label),
        };
        let columns = std::iter::once(Column::number(&self.x.label)).chain(names).collect();
        Some(Table { caption, columns, rows })
    }

    fn x_texts(&self, places: &[f64]) -> Vec<String> {
        let named = |x: f64| match &self.x.ticks {
            Ticks::At(all) => all.iter().find(|tick| tick.0 == x).map(|tick| tick.1.clone()),
            Ticks::Round => None,
        };
        places.iter().map(|x| named(*x).unwrap_or_else(|| short(*x))).collect()
    }

    fn marked(&self, marks: &Marks) -> Table {
        let shown = marks.at.iter().take(TABLE_ROWS_MAX);
        let is_span = marks.mark == Mark::Span;
        let more = match marks.at.len() > TABLE_ROWS_MAX {
            true => format!(", the first {TABLE_ROWS_MAX}"),
            false => String::new(),
        };
        let mut columns = vec![Column::number(&self.x.label)];
        columns.extend(is_span.then(|| Column::number("until")));
        Table {
            caption: format!("{}: {}{more}", capital(&marks.name), marks.at.len()),
            columns,
            rows: shown
                .map(|(from, to)| match is_span {
                    true => vec![short(*from), short(*to)],
                    false => vec![short(*from)],
                })
                .collect(),
        }
    }
}

/// The least, the median and the most of some values.
struct Range {
    least: f64,
    median: f64,
    most: f64,
}

impl Range {
    /// `None` of no values.
    fn of(mut values: Vec<f64>) -> Option<Range> {
        let middle = (values.len().checked_sub(1)? as f64 * 0.5).round() as usize;
        // No need to sort them all.
        let (below, median, above) = values.select_nth_unstable_by(middle, f64::total_cmp);
        let by = |a: &&f64, b: &&f64| a.total_cmp(b);
        let least = below.iter().min_by(by).unwrap_or(median);
        let most = above.iter().max_by(by).unwrap_or(median);
        Some(Range { least: *least, median: *median, most: *most })
    }
}

/// The value of a series at an x: of the last point that is not later.
fn at(series: &Series, x: f64) -> String {
    let behind = series.points.partition_point(|point| point.0 <= x + 1e-12);
    let found = behind.checked_sub(1).and_then(|place| {
        let exact = matches!(series.drawn, Drawn::Dots) || !series.limits.is_empty();
        let point = series.points[place];
        (!exact || (point.0 - x).abs() < 1e-9).then_some((place, point.1))
    });
    match found {
        Some((place, y)) => match (series.limits.get(place), &series.drawn) {
            (Some((low, high)), _) => format!("{} ({} to {})", value(y), value(*low), value(*high)),
            (None, Drawn::Range(below)) => {
                let low = below.get(place).copied().unwrap_or(f64::NAN);
                format!("{} to {}", value(low), value(y))
            }
            (None, Drawn::Area(below)) => value(y - below.get(place).copied().unwrap_or(0.0)),
            (None, _) => value(y),
        },
        None => "-".into(),
    }
}

fn short(x: f64) -> String {
    let text = format!("{x:.4}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Where values are in the drawing.
struct Plane {
    x: Span,
    y: Span,
}

impl Plane {
    fn of(chart: &Xy) -> Plane {
        let points = || chart.series.iter().flat_map(|series| series.points.iter());
        let marks = |level: bool| {
            let all = chart.marks.iter().filter(move |m| (m.mark == Mark::Level) == level);
            all.flat_map(|marks| marks.at.iter().flat_map(|(from, to)| [*from, *to]))
        };
        let limits = chart.series.iter().flat_map(|series| series.limits.iter());
        let below = chart.series.iter().flat_map(|series| match &series.drawn {
            Drawn::Area(below) | Drawn::Range(below) => below.as_slice(),
            _ => &[],
        });
        let ys = points().map(|point| point.1);
        let ys = ys.chain(limits.flat_map(|(low, high)| [*low, *high]));
        let mut y_axis = chart.y.clone();
        let ys: Vec<f64> = ys.chain(below.copied()).chain(marks(true)).collect();
        // The highest line has air above it, where marks stand.
        let known = || ys.iter().copied().filter(|y| y.is_finite()).chain(chart.y.holds.clone());
        let (low, top) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
        if !y_axis.is_log && y_axis.ticks == Ticks::Round && top > low {
            let step = round_up((top - low) / 5.0);
            y_axis.holds.push(((top + (top - low) * 0.04) / step).ceil() * step);
            y_axis.holds.push((low / step).floor() * step);
        }
        let xs = points().map(|point| point.0).chain(marks(false));
        let steps = if chart.x.is_log { 9 } else { 6 };
        Plane {
            x: Span::of(&chart.x, xs, (LEFT, WIDTH - RIGHT), steps),
            y: Span::of(&y_axis, ys.into_iter(), (HEIGHT - BOTTOM, TOP), 5),
        }
    }

    /// Where the plane is in the drawing, and the values at its ends: left, right, top and bottom.
    fn scales(&self) -> String {
        let px = [LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM].map(number).join(" ");
        format!("{px} {} {} {} {}", self.x.low, self.x.high, self.y.low, self.y.high)
    }

    /// Grid, numbers and labels. The label of the upward axis lies above it, where it is read.
    fn frame(&self, chart: &Xy) -> Markup {
        let (left, right) = (number(LEFT), number(WIDTH - RIGHT));
        let (bottom, middle) = (HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2.0);
        html! {
            text class="f" x="4" y="15" fill=(FAINT) { (chart.y.named()) }
            g class="ticks-y" {
                @for (at, text) in &self.y.ticks {
                    @let y = self.y.px(*at);
                    path class="g" stroke=(GRID) d=(format!("M{left} {}H{right}", number(y))) {}
                    text class="f" x=(number(LEFT - 6.0)) y=(number(y + 4.5)) text-anchor="end"
                        fill=(FAINT) { (text) }
                }
            }
            g class="ticks-x" {
                @for (at, text) in &self.x.ticks {
                    @let x = number(self.x.px(*at));
                    path class="a" stroke=(FAINT) d=(format!("M{x} {}v5", number(bottom))) {}
                    text class="f" x=(x) y=(number(bottom + 24.0)) text-anchor="middle"
                        fill=(FAINT) { (text) }
                }
            }
            path class="a" stroke=(FAINT) d=(format!("M{left} {}H{right}", number(bottom))) {}
            text class="f" x=(number(middle)) y=(number(HEIGHT - 6.0)) text-anchor="middle"
                fill=(FAINT) { (chart.x.named()) }
        }
    }

    fn series(&self, series: &Series, points: &[(f64, f64)]) -> Markup {
        let (stroke_class, stroke) = draw::stroke(series.colour);
        let count = series.drawn(points);
        let name = escape::line(&series.name);
        match &series.drawn {
            Drawn::Area(below) => html! {
                path fill=(draw::pattern(series.colour)) data-points=(count) data-series=(name)
                    d=(self.area(points, below)) {}
            },
            Drawn::Range(below) => {
                let (fill_class, fill) = draw::fill(series.colour);
                html! {
                    path class=(fill_class) fill=(fill) fill-opacity="0.35" data-points=(count)
                        data-series=(name) d=(self.area(points, below)) {}
                }
            }
            Drawn::Dots => {
                let (shape, width, ends) = draw::marker(series.colour);
                html! {
                    (self.limits(series))
                    path class=(stroke_class) stroke=(stroke) stroke-width=(width)
                        stroke-linecap=(ends) fill="none" data-points=(count) data-series=(name)
                        d=(self.dots(points, shape)) {}
                }
            }
            Drawn::Line | Drawn::Steps => html! {
                (self.limits(series))
                path class=(stroke_class) stroke=(stroke) stroke-width="1.5"
                    stroke-dasharray=[draw::dash(series.colour)] stroke-linejoin="round" fill="none"
                    data-points=(count) data-series=(name)
                    d=(self.line(points, series.drawn == Drawn::Steps)) {}
            },
        }
    }

    fn limits(&self, series: &Series) -> Markup {
        let (class, colour) = draw::stroke(series.colour);
        let mut bars = Path::default();
        for ((x, _), (low, high)) in series.points.iter().zip(&series.limits) {
            let (x, low, high) = (self.x.px(*x), self.y.px(*low), self.y.px(*high));
            bars.add('M', &[x, low]);
            bars.add('V', &[high]);
            for end in [low, high] {
                bars.add('M', &[x - 3.0, end]);
                bars.add('H', &[x + 3.0]);
            }
        }
        html! {
            @if !bars.is_empty() {
                path class=(class) stroke=(colour) stroke-width="1" fill="none" data-limits
                    d=(bars) {}
            }
        }
    }

    fn line(&self, points: &[(f64, f64)], steps: bool) -> Path {
        let mut path = Path::default();
        let mut begun = false;
        for (x, y) in points {
            let is_gap = y.is_nan();
            let (x, y) = (self.x.px(*x), self.y.px(*y));
            match (is_gap, begun, steps) {
                (true, true, true) => path.add('H', &[x]),
                (true, ..) => {}
                (false, false, _) => path.add('M', &[x, y]),
                (false, true, true) => {
                    path.add('H', &[x]);
                    path.add('V', &[y]);
                }
                (false, true, false) => path.add('L', &[x, y]),
            }
            begun = !is_gap;
        }
        path
    }

    fn dots(&self, points: &[(f64, f64)], shape: &str) -> Path {
        let mut path = Path::default();
        for (x, y) in points.iter().filter(|(_, y)| !y.is_nan()) {
            path.add('M', &[self.x.px(*x), self.y.px(*y)]);
            path.add_shape(shape);
        }
        path
    }

    fn area(&self, points: &[(f64, f64)], below: &[f64]) -> Path {
        let upper = points.iter().map(|(x, y)| (*x, if y.is_nan() { 0.0 } else { *y }));
        let lower = points.iter().zip(below).map(|((x, _), low)| (*x, *low));
        let (upper, lower): (Vec<_>, Vec<_>) = (upper.collect(), lower.collect());
        let mut path = self.line(&upper, true);
        if path.is_empty() {
            return path;
        }
        // Back along the lower edge, in steps too.
        for pair in lower.windows(2).rev() {
            path.add('V', &[self.y.px(pair[0].1)]);
            path.add('H', &[self.x.px(pair[0].0)]);
        }
        path.add_shape("Z");
        path
    }

    fn marks(&self, marks: &Marks) -> Markup {
        let path = self.mark_path(marks);
        let (count, name) = (marks.at.len(), escape::line(&marks.name));
        match marks.mark {
            Mark::Span => html! {
                path class="span" fill=(INK) fill-opacity="0.13" data-marks=(count)
                    data-mark="span" data-series=(name) d=(path) {}
            },
            Mark::Level => html! {
                path class="a" stroke=(FAINT) stroke-dasharray="5 4" fill="none"
                    data-marks=(count) data-mark="level" data-series=(name) d=(path) {}
            },
            Mark::Down | Mark::Up => {
                let (class, fill) = draw::fill(if marks.mark == Mark::Down { 1 } else { 2 });
                html! {
                    path class=(class) fill=(fill) data-marks=(count) data-mark="moment"
                        data-series=(name) d=(path) {}
                }
            }
        }
    }

    fn mark_path(&self, marks: &Marks) -> Path {
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let mut path = Path::default();
        let placed = if marks.mark == Mark::Level { Vec::new() } else { self.merged(&marks.at) };
        for (from, to) in placed {
            match marks.mark {
                Mark::Span => {
                    let width = (to - from).max(1.0);
                    path.add('M', &[from, top]);
                    path.add('h', &[width]);
                    path.add('V', &[bottom]);
                    path.add('h', &[-width]);
                    path.add_shape("z");
                }
                Mark::Down => {
                    path.add('M', &[from - 4.0, top - 7.0]);
                    path.add_shape("h8l-4 7z");
                }
                Mark::Up | Mark::Level => {
                    path.add('M', &[from - 4.0, bottom]);
                    path.add_shape("h8l-4 -7z");
                }
            }
        }
        for (y, _) in marks.at.iter().filter(|_| marks.mark == Mark::Level) {
            path.add('M', &[LEFT, self.y.px(*y)]);
            path.add('H', &[WIDTH - RIGHT]);
        }
        path
    }

    /// In pixels; those that fall on the same one are drawn once.
    fn merged(&self, at: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut merged: Vec<(f64, f64)> = Vec::new();
        let mut spans: Vec<(f64, f64)> =
            at.iter().map(|(from, to)| (self.x.px(*from), self.x.px(*to))).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (from, to) in spans {
            match merged.last_mut().filter(|last| from <= last.1 + 0.5) {
                Some(last) => last.1 = last.1.max(to),
                None => merged.push((from, to)),
            }
        }
        merged
    }
}

pub(super) const HEIGHT: f64 = 266.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 52.0;
/// Points of all series of a chart: a page of ten charts stays below 600 KB.
const CHART_POINTS_MAX: usize = 4000;
const TABLE_ROWS_MAX: usize = 60;
