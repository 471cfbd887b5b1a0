//! Colours that people with colour blindness tell apart, on white and on dark paper. A drawing has
//! them as attributes; a style sheet replaces them where the reader asks for dark pages.

/// On white paper: blue, orange, green, purple, brown, black. They were searched for: the least
/// difference of two of them is as large as possible for all kinds of sight (the test below).
pub const LIGHT: [&str; COUNT] = ["#004eeb", "#f06800", "#12a56a", "#ac3991", "#5c3d00", "#0d0d0d"];
/// The same on dark paper.
pub const DARK: [&str; COUNT] = ["#0f7fff", "#f46034", "#34f494", "#ba5e95", "#ffc300", "#f2f2f2"];
/// How many series a chart can tell apart.
pub const COUNT: usize = 6;

pub const INK: &str = "#1a1a1a";
pub const FAINT: &str = "#5c5c5c";
pub const GRID: &str = "#dddddd";
pub const PAPER: &str = "#ffffff";
pub const PAPER_DARK: &str = "#16181c";
const INK_DARK: &str = "#e8e8e8";
const FAINT_DARK: &str = "#a8a8a8";
const GRID_DARK: &str = "#3a3d44";

/// The rules for drawings: a class for strokes and one for areas of each colour.
pub fn style() -> String {
    let mut dark = format!(
        ".t{{fill:{INK_DARK}}}.f{{fill:{FAINT_DARK}}}.g{{stroke:{GRID_DARK}}}\
         .track{{fill:{GRID_DARK}}}\
         .a{{stroke:{FAINT_DARK}}}.hatch{{stroke:{PAPER_DARK}}}.frame{{stroke:{INK_DARK}}}\
         .paper{{fill:{PAPER_DARK}}}.span{{fill:{INK_DARK}}}"
    );
    for (number, colour) in DARK.iter().enumerate() {
        dark.push_str(&format!(".s{number}{{stroke:{colour}}}.b{number}{{fill:{colour}}}"));
    }
    format!(
        "@media (max-width:700px){{svg text{{font-size:18px}}svg .cell{{display:none}}}}\
         @media screen and (prefers-color-scheme:dark){{{dark}}}"
    )
}

/// A colour of the sequential scale, 0 to 1: from dark blue over grey to yellow, lighter all the
/// way (cividis, Nuñez et al. 2018, at eleven steps), so that it is one in grey too.
pub fn sequential(share: f64) -> &'static str {
    const STEPS: [&str; 11] = [
        "#00224e", "#0d346b", "#35456c", "#50566d", "#666970", "#7d7c78", "#948e77", "#aea371",
        "#c8b866", "#e5cf52", "#fee838",
    ];
    STEPS[(share.clamp(0.0, 1.0) * 10.0).round() as usize]
}

/// The ink that is read on a colour of that scale.
pub fn ink_on(share: f64) -> &'static str {
    if share > 0.45 { "#000000" } else { "#ffffff" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([r, g, b]: [f64; 3]) -> f64 {
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    /// WCAG 2: the contrast of two colours, 1 to 21.
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(linear(a)), luminance(linear(b)));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_lines_stand_out_from_the_paper() {
        for (paper, inks, lines) in
            [(PAPER, [INK, FAINT], LIGHT), (PAPER_DARK, [INK_DARK, FAINT_DARK], DARK)]
        {
            for ink in inks {
                assert!(contrast(paper, ink) >= 4.5, "{ink} on {paper}");
            }
            for line in lines {
                assert!(contrast(paper, line) >= 3.0, "{line} on {paper}");
            }
        }
        for tenth in 0..=10 {
            let share = f64::from(tenth) / 10.0;
            let (paper, ink) = (sequential(share), ink_on(share));
            assert!(contrast(paper, ink) >= 4.5, "{ink} on {paper}: {}", contrast(paper, ink));
        }
    }

    /// What people without one kind of cone see (Machado, Oliveira and Fernandes 2009).
    const SEEN: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    ];

    /// CIE 1976 L*a*b*.
    fn lab(colour: &str, seen: &[[f64; 3]; 3]) -> [f64; 3] {
        let rgb = linear(colour);
        let [r, g, b] =
            seen.map(|row| (0..3).map(|i| row[i] * rgb[i]).sum::<f64>().clamp(0.0, 1.0));
        let xyz = [
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
        ];
        let [x, y, z] = xyz.map(|value: f64| match value > 0.008856 {
            true => value.cbrt(),
            false => 7.787 * value + 16.0 / 116.0,
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn series_are_told_apart_by_everybody() {
        for palette in [LIGHT, DARK] {
            for seen in &SEEN {
                for (at, a) in palette.iter().enumerate() {
                    for b in &palette[at + 1..] {
                        let (a_lab, b_lab) = (lab(a, seen), lab(b, seen));
                        let apart: f64 =
                            (0..3).map(|i| (a_lab[i] - b_lab[i]).powi(2)).sum::<f64>().sqrt();
                        assert!(apart >= APART_MIN, "{a} and {b}: {apart:.1}");
                    }
                }
            }
        }
    }

    /// A difference of 2.3 is just seen side by side; lines and areas need several times that.
    const APART_MIN: f64 = 25.0;
}
