//! What the drawings have in common: their width, numbers of few digits, the plot's frame, signs.

use maud::{Markup, Render, html};

use super::colour::{self, FAINT, INK};
use super::{Key, Mark, Sign, timelines};
use crate::report::escape;

/// In units of the drawing. A page scales it to its column: 343 on a phone, 580 on a wide screen. A
/// style sheet makes the text of narrow ones larger.
pub(super) const WIDTH: f64 = 520.0;

/// Coordinates need no more than a tenth.
pub(super) fn number(value: f64) -> String {
    let mut text = String::new();
    push_number(&mut text, value);
    text
}

/// Rounded to a tenth, and without `.0`. A page has ten thousand coordinates, so they are written
/// from whole numbers and where they belong: the formatter of floats was half of a drawing.
fn push_number(text: &mut String, value: f64) {
    let tenths = (value * 10.0).round_ties_even();
    let is_near = tenths.abs() < TENTHS_MAX;
    if !is_near {
        let other = format!("{value:.1}");
        return text.push_str(other.strip_suffix(".0").unwrap_or(&other));
    }
    if tenths < 0.0 {
        text.push('-');
    }
    let tenths = tenths.abs() as u32;
    let (mut whole, tenth) = (tenths / 10, tenths % 10);
    let mut digits = [b'0'; 10];
    let mut first = digits.len() - 1;
    digits[first] = b'0' + (whole % 10) as u8;
    while whole >= 10 {
        whole /= 10;
        first -= 1;
        digits[first] = b'0' + (whole % 10) as u8;
    }
    text.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
    if tenth > 0 {
        text.push('.');
        text.push(char::from(b'0' + tenth as u8));
    }
}

/// What a path is made of: commands of SVG, each with its numbers.
#[derive(Debug, Default)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn add(&mut self, command: char, numbers: &[f64]) {
        self.0.push(command);
        for (place, number) in numbers.iter().enumerate() {
            if place > 0 {
                self.0.push(' ');
            }
            push_number(&mut self.0, *number);
        }
    }

    /// Commands with their numbers, as they are.
    pub(super) fn add_shape(&mut self, shape: &str) {
        self.0.push_str(shape);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// As it is: a path has letters, digits, `.`, `-` and spaces alone.
impl Render for Path {
    fn render_to(&self, buffer: &mut String) {
        buffer.push_str(&self.0);
    }
}

/// The stroke or the fill of a series: an attribute, and a class for the style sheet.
pub(super) fn stroke(colour: usize) -> (String, &'static str) {
    (format!("s{}", colour % colour::COUNT), colour::LIGHT[colour % colour::COUNT])
}

pub(super) fn fill(colour: usize) -> (String, &'static str) {
    (format!("b{}", colour % colour::COUNT), colour::LIGHT[colour % colour::COUNT])
}

/// How the line of a series is broken, so that it is known without its colour.
pub(super) fn dash(colour: usize) -> Option<&'static str> {
    DASHES[colour % colour::COUNT]
}

/// How the points of a series are drawn, so that they are known without their colour: what follows
/// the place of a point in its path, the width of the stroke, and its ends.
pub(super) fn marker(colour: usize) -> (&'static str, &'static str, &'static str) {
    MARKERS[colour % colour::COUNT]
}

/// The fill of an area: its colour, and a pattern of `patterns` over it.
pub(super) fn pattern(colour: usize) -> String {
    let colour = colour % colour::COUNT;
    format!("url(#fill-{colour}) {}", colour::LIGHT[colour])
}

/// What areas are filled with: each page, and each drawing that stands alone, has them once.
pub(crate) fn patterns() -> Markup {
    html! {
        defs {
            @for (number, lines) in PATTERNS.iter().enumerate() {
                @let (class, colour) = fill(number);
                pattern id=(format!("fill-{number}")) width="8" height="8"
                    patternUnits="userSpaceOnUse" {
                    rect class=(class) fill=(colour) width="8" height="8" {}
                    @if !lines.is_empty() {
                        path class="hatch" stroke=(colour::PAPER) stroke-opacity="0.75"
                            stroke-width="1.2" fill="none" d=(lines) {}
                    }
                }
            }
        }
    }
}

/// The sign of a legend, in a box of 20 by 12.
pub(super) fn sign(sign: Sign) -> Markup {
    match sign {
        Sign::Line(number) => {
            let (class, colour) = stroke(number);
            html! {
                path class=(class) stroke=(colour) stroke-width="2.5" fill="none"
                    stroke-dasharray=[dash(number)] d="M0 6H20" {}
            }
        }
        Sign::Area(colour) => html! {
            rect fill=(pattern(colour)) x="1" y="1" width="18" height="10" {}
        },
        Sign::Dot(number) => {
            let (class, colour) = stroke(number);
            let (shape, width, ends) = marker(number);
            html! {
                path class=(class) stroke=(colour) stroke-width=(width) stroke-linecap=(ends)
                    fill="none" d=(format!("M10 6{shape}")) {}
            }
        }
        Sign::Frame => html! {
            rect x="3" y="1" width="14" height="10" fill="none" stroke=(INK) stroke-width="2"
                class="frame" {}
        },
        Sign::Mark(mark) => mark_sign(mark),
        Sign::Span(kind) => timelines::shape(kind, 1.0, 0.0, 18.0),
    }
}

fn mark_sign(mark: Mark) -> Markup {
    match mark {
        Mark::Span => html! {
            rect class="span" fill=(INK) fill-opacity="0.16" x="1" y="0" width="18" height="12" {}
        },
        Mark::Down => {
            let (class, colour) = fill(1);
            html! { path class=(class) fill=(colour) d="M5 1H15L10 11Z" {} }
        }
        Mark::Up => {
            let (class, colour) = fill(2);
            html! { path class=(class) fill=(colour) d="M5 11H15L10 1Z" {} }
        }
        Mark::Level => html! {
            path class="a" stroke=(FAINT) stroke-width="1.5" stroke-dasharray="5 4" fill="none"
                d="M0 6H20" {}
        },
    }
}

/// The legend of a drawing that stands alone, from `top` on, and its height.
pub(super) fn legend(keys: &[Key], top: f64) -> (f64, Markup) {
    let (mut x, mut row) = (LEFT, 0);
    let mut placed = Vec::new();
    for key in keys {
        let text = shortened(&escape::line(&key.text), 60);
        let width = 26.0 + LETTER_PX * text.chars().count() as f64 + 14.0;
        if x > LEFT && x + width > WIDTH {
            (x, row) = (LEFT, row + 1);
        }
        placed.push((x, top + 6.0 + f64::from(row) * ROW_PX, key.sign, text));
        x += width;
    }
    let height = if keys.is_empty() { 0.0 } else { 12.0 + f64::from(row + 1) * ROW_PX };
    let drawn = html! {
        @for (x, y, kind, text) in &placed {
            g transform=(format!("translate({} {})", number(*x), number(*y))) {
                (sign(*kind))
                text class="t" x="26" y="11" fill=(INK) { (text) }
            }
        }
    };
    (height, drawn)
}

/// The beginning of a text of strangers, as long as a drawing has space for.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['\u{2026}']).collect(),
        false => text.to_string(),
    }
}

/// Text in lines of at most so many letters, broken between words where there are any. Of a text
/// that needs more lines the middle is left out: what tells names apart is often at their ends.
pub(super) fn lines(text: &str, letters: usize, lines_max: usize) -> Vec<String> {
    let room = letters * lines_max * 3 / 4;
    let count = text.chars().count();
    let text = match count > room {
        true => {
            let head = text.chars().take(room / 2 - 1);
            let tail = text.chars().skip(count - room / 2);
            head.chain(['\u{2026}']).chain(tail).collect()
        }
        false => text.to_string(),
    };
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + word.trim_end().chars().count() > letters {
            lines.push(String::new());
        }
        while !rest.is_empty() {
            let line = lines.len() - 1;
            let free = letters - lines[line].trim_end().chars().count().min(letters);
            let taken: String = rest.drain(..rest.len().min(free.max(1))).collect();
            lines[line].push_str(&taken);
            if !rest.is_empty() && rest != [' '] {
                lines.push(String::new());
            } else {
                rest.clear();
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_string()).filter(|line| !line.is_empty()).collect()
}

const DASHES: [Option<&str>; colour::COUNT] =
    [None, Some("8 3"), Some("2 2"), Some("8 3 2 3"), Some("12 4"), Some("4 3 1 3")];
/// A round dot, a square, a cross, a plus, a diamond, a triangle.
const MARKERS: [(&str, &str, &str); colour::COUNT] = [
    ("h0", "5", "round"),
    ("h0", "4.5", "square"),
    ("h0m-3 -3l6 6m0 -6l-6 6", "1.6", "butt"),
    ("h0m-3.5 0h7m-3.5 -3.5v7", "1.6", "butt"),
    ("h0m0 -4l4 4l-4 4l-4 -4l4 -4", "1.6", "round"),
    ("h0m0 -3.5l3.5 6h-7l3.5 -6", "1.6", "round"),
];
/// Lines over the colour of an area, in a square of 8 that repeats.
const PATTERNS: [&str; colour::COUNT] = [
    "",
    "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "M2 2h0.1M6 6h0.1M1.5 2h1M5.5 6h1",
    "M-2 6L2 10M0 0L8 8M6 -2L10 2",
    "M0 4H8",
    "M4 0V8M0 4H8",
];
const LEFT: f64 = 8.0;
const ROW_PX: f64 = 20.0;
/// More tenths than fit a number of 32 bits are far from any paper.
const TENTHS_MAX: f64 = 4e9;
/// The mean width of a letter of 13 px, rounded up.
const LETTER_PX: f64 = 7.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinate_has_a_tenth_and_no_more() {
        let odd = [0.0, -0.0, 0.04, -0.04, 0.05, 0.25, 9.95, -9.96, 99.97, 100.0, 1e7, 3e11];
        let many = (0..2_000).map(|place| f64::from(place) * 0.371 - 100.0);
        for value in odd.into_iter().chain(many) {
            let text = number(value);
            let read: f64 = text.parse().unwrap();
            assert!((read - value).abs() <= 0.050_001, "{value}: {text}");
            assert_eq!(text, format!("{}", read + 0.0), "{value}");
        }
        assert_eq!([2.25, 2.75, -0.04].map(number), ["2.2", "2.8", "0"]);
        let mut path = Path::default();
        path.add('M', &[1.0, -2.25]);
        path.add('H', &[3.96]);
        path.add_shape("h0");
        assert_eq!(path.render().into_string(), "M1 -2.2H4h0");
    }
}
