//! A command line split into words as a POSIX shell splits it, and words quoted so that a shell
//! takes them back. Nothing is expanded.

/// Splits at blanks; quotes and backslashes keep blanks inside a word.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(|c| c.is_whitespace()).is_some() {}
        if letters.peek().is_none() {
            break;
        }
        words.push(word(&mut letters)?);
    }
    match words.is_empty() {
        true => Err("write a command".into()),
        false => Ok(words),
    }
}

/// One word, up to a blank outside quotes.
fn word(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let mut word = String::new();
    while let Some(letter) = letters.next_if(|c| !c.is_whitespace()) {
        match letter {
            '\'' => loop {
                match letters.next().ok_or(UNCLOSED)? {
                    '\'' => break,
                    inner => word.push(inner),
                }
            },
            '"' => loop {
                match letters.next().ok_or(UNCLOSED)? {
                    '"' => break,
                    // Between double quotes a backslash escapes only these.
                    '\\' => match letters.next().ok_or(UNCLOSED)? {
                        kept @ ('"' | '\\' | '$' | '`') => word.push(kept),
                        other => word.extend(['\\', other]),
                    },
                    inner => word.push(inner),
                }
            },
            '\\' => word.push(letters.next().ok_or("a backslash stands at the end")?),
            plain => word.push(plain),
        }
    }
    Ok(word)
}

/// The text as one word of a shell's command line.
pub(super) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "@%+=:,./-_".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

const UNCLOSED: &str = "a quote is not closed";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn split_like_a_shell() {
        let cases: [(&str, &[&str]); 8] = [
            ("ssh", &["ssh"]),
            ("  ssh   -p 22 ", &["ssh", "-p", "22"]),
            ("ssh -i 'my key'", &["ssh", "-i", "my key"]),
            ("ssh -i \"my \\\"key\\\"\"", &["ssh", "-i", "my \"key\""]),
            ("a\\ b c", &["a b", "c"]),
            ("a'b'\"c\"d", &["abcd"]),
            ("x '' \"\"", &["x", "", ""]),
            ("'a\\b' \"a\\b\"", &["a\\b", "a\\b"]),
        ];
        for (line, expect) in cases {
            assert_eq!(split(line).unwrap(), expect, "{line}");
        }
        for line in ["", "  ", "'a", "\"a", "\"a\\", "a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words in prop::collection::vec("\\PC{0,12}", 1..5)) {
            let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
            prop_assert_eq!(split(&line.join(" ")).unwrap(), words);
        }
    }
}
