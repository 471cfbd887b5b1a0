//! Text of names, peers and files made safe for a terminal: it cannot move the cursor, change the
//! title, hide or reverse text, and one line stays one line. JSON has the exact text.

/// Text that is one line: a name, a warning, a reason.
pub fn line(text: &str) -> String {
    // Nearly all text: a page has thousands of numbers.
    if text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return text.to_string();
    }
    text.chars().map(|c| spelled(c, is_harmless(c))).collect()
}

/// Text with line breaks of our own; foreign text in it has passed `line`.
pub fn page(text: &str) -> String {
    text.chars().map(|c| spelled(c, c == '\n' || is_harmless(c))).collect()
}

fn spelled(c: char, shown: bool) -> String {
    match shown {
        true => String::from(c),
        false => c.escape_default().collect(),
    }
}

/// False for control characters, for bidirectional controls, and for invisible characters.
fn is_harmless(c: char) -> bool {
    !c.is_control() && !UNSEEN.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

/// Format characters of Unicode (category Cf), line separators, and invisible letters.
const UNSEEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),       // soft hyphen
    ('\u{600}', '\u{605}'),     // Arabic number signs
    ('\u{61c}', '\u{61c}'),     // Arabic letter mark
    ('\u{6dd}', '\u{6dd}'),     // Arabic end of ayah
    ('\u{70f}', '\u{70f}'),     // Syriac abbreviation mark
    ('\u{890}', '\u{891}'),     // Arabic pound marks
    ('\u{8e2}', '\u{8e2}'),     // Arabic disputed end of ayah
    ('\u{115f}', '\u{1160}'),   // Hangul fillers
    ('\u{180e}', '\u{180e}'),   // Mongolian vowel separator
    ('\u{200b}', '\u{200f}'), // zero width space and joiners, left-to-right and right-to-left marks
    ('\u{2028}', '\u{202e}'), // line and paragraph separators, embeddings and overrides
    ('\u{2060}', '\u{206f}'), // word joiner, invisible operators, isolates
    ('\u{3164}', '\u{3164}'), // Hangul filler
    ('\u{feff}', '\u{feff}'), // byte order mark
    ('\u{ffa0}', '\u{ffa0}'), // halfwidth Hangul filler
    ('\u{fff9}', '\u{fffb}'), // interlinear annotations
    ('\u{110bd}', '\u{110bd}'), // Kaithi number signs
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'), // hieroglyph format controls
    ('\u{1bca0}', '\u{1bca3}'), // shorthand format controls
    ('\u{1d173}', '\u{1d17a}'), // musical format controls
    ('\u{e0000}', '\u{e007f}'), // tags
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_say_is_spelled_out() {
        let cases = [
            ("plain, 'quoted' \\ text", "plain, 'quoted' \\ text"),
            ("Größe 文件 файл ملف 😀 e\u{301}", "Größe 文件 файл ملف 😀 e\u{301}"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{1b}[2J\u{1b}[31mred", "\\u{1b}[2J\\u{1b}[31mred"),
            ("\u{9b}31m\u{9d}0;t\u{9c}", "\\u{9b}31m\\u{9d}0;t\\u{9c}"),
            ("a\rb\tc\u{8}\u{7f}\0", "a\\rb\\tc\\u{8}\\u{7f}\\u{0}"),
            ("txt.\u{202e}exe", "txt.\\u{202e}exe"),
            ("\u{202a}\u{202b}\u{202c}\u{202d}", "\\u{202a}\\u{202b}\\u{202c}\\u{202d}"),
            ("\u{2066}\u{2067}\u{2068}\u{2069}", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}"),
            ("\u{200e}\u{200f}\u{61c}", "\\u{200e}\\u{200f}\\u{61c}"),
            ("a\u{200b}b\u{200d}c\u{feff}d\u{ad}", "a\\u{200b}b\\u{200d}c\\u{feff}d\\u{ad}"),
            ("a\u{2028}b\u{2029}c", "a\\u{2028}b\\u{2029}c"),
            ("\u{e0041}\u{3164}", "\\u{e0041}\\u{3164}"),
        ];
        for (said, shown) in cases {
            assert_eq!(line(said), shown);
            assert_eq!(page(said), shown);
            assert_eq!(line(&line(said)), shown, "twice is once");
        }
        assert_eq!(line("one\ndatapump: all is well"), "one\\ndatapump: all is well");
        assert_eq!(page("one\ntwo\n"), "one\ntwo\n");
    }
}
