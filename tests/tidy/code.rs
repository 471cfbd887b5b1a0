//! Rust text in which all but code is blanked, so that rules can search for words.

/// The same text, line for line and column for column, with spaces where comments, strings and
/// character literals were.
pub(crate) fn code_only(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = match skipped(&letters, at) {
            Some(end) => end,
            None => {
                out.push(letters[at]);
                at += 1;
                continue;
            }
        };
        out.extend(letters[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// The lines of each function that has a body: name, first line and last line, counted from one.
pub(crate) fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let letters: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    for at in word_starts(&letters, "fn") {
        let name = word_after(&letters, at + 2);
        let Some(open) = body_start(&letters, at) else { continue };
        if name.is_empty() {
            continue;
        }
        let close = matching_brace(&letters, open);
        found.push((name, line_of(&letters, at), line_of(&letters, close)));
    }
    found
}

/// True when `word` is a whole word of `line`.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let letters: Vec<char> = line.chars().collect();
    !word_starts(&letters, word).is_empty()
}

/// Where the comment, string or character literal that starts at `at` ends, if one starts there.
fn skipped(letters: &[char], at: usize) -> Option<usize> {
    let next = letters.get(at + 1).copied();
    match letters[at] {
        '/' if next == Some('/') => Some(find(letters, at, '\n')),
        '/' if next == Some('*') => Some(block_comment_end(letters, at)),
        '"' => Some(string_end(letters, at)),
        'r' if !continues_word(letters, at) => raw_string_end(letters, at),
        '\'' => char_end(letters, at),
        _ => None,
    }
}

fn find(letters: &[char], from: usize, wanted: char) -> usize {
    letters[from..].iter().position(|c| *c == wanted).map_or(letters.len(), |n| from + n)
}

fn block_comment_end(letters: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < letters.len() {
        match (letters[at], letters[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    letters.len()
}

fn string_end(letters: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < letters.len() {
        match letters[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    letters.len()
}

/// `r"…"` and `r#"…"#`; a raw identifier such as `r#type` is no string.
fn raw_string_end(letters: &[char], start: usize) -> Option<usize> {
    let hashes = letters[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if letters.get(open) != Some(&'"') {
        return None;
    }
    let mut at = open + 1;
    while at < letters.len() {
        let closes = letters[at] == '"'
            && letters[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
        if closes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(letters.len())
}

/// A character literal; a lifetime has no second quote where one would be.
fn char_end(letters: &[char], start: usize) -> Option<usize> {
    match letters.get(start + 1)? {
        '\\' => Some((find(letters, start + 3, '\'') + 1).min(letters.len())),
        _ if letters.get(start + 2) == Some(&'\'') => Some(start + 3),
        _ => None,
    }
}

/// True inside a word. The `r` of `br"…"` starts a raw string all the same.
fn continues_word(letters: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|i| letters[i]);
    match before(1) {
        Some('b' | 'c') => before(2).is_some_and(is_word),
        Some(c) => is_word(c),
        None => false,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_starts(letters: &[char], word: &str) -> Vec<usize> {
    let word: Vec<char> = word.chars().collect();
    let fits = |at: usize| {
        letters[at..].starts_with(&word)
            && (at == 0 || !is_word(letters[at - 1]))
            && letters.get(at + word.len()).is_none_or(|c| !is_word(*c))
    };
    (0..letters.len()).filter(|at| letters[*at] == word[0] && fits(*at)).collect()
}

fn word_after(letters: &[char], from: usize) -> String {
    let rest = letters[from..].iter().skip_while(|c| c.is_whitespace());
    rest.take_while(|c| is_word(**c)).collect()
}

/// The brace that opens the body of the function whose `fn` is at `at`; a declaration has none.
fn body_start(letters: &[char], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in letters.iter().enumerate().skip(at) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(i),
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

fn matching_brace(letters: &[char], open: usize) -> usize {
    let mut depth = 0;
    for (i, c) in letters.iter().enumerate().skip(open) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    letters.len().saturating_sub(1)
}

fn line_of(letters: &[char], at: usize) -> usize {
    letters[..at].iter().filter(|c| **c == '\n').count() + 1
}
