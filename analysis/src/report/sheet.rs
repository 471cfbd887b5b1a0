//! Tables as text for a terminal and as Markdown: the same cells, two forms.

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Markdown,
}

/// One table with its title above and its notes below.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
}

impl Sheet {
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Sheet {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        Sheet { title: title.into(), columns, ..Sheet::default() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub fn write(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Markdown => self.markdown(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", harmless(&self.title));
        if !self.columns.is_empty() && !self.rows.is_empty() {
            let all: Vec<Vec<String>> = std::iter::once(&self.columns)
                .chain(&self.rows)
                .map(|row| row.iter().map(|cell| harmless(cell)).collect())
                .collect();
            let width = |i: usize| {
                let cells = all.iter().filter_map(|row| row.get(i));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            };
            for row in &all {
                let cells = row.iter().enumerate().map(|(i, cell)| match self.is_text(i) {
                    true => format!("{cell:<width$}", width = width(i)),
                    false => format!("{cell:>width$}", width = width(i)),
                });
                let line = cells.collect::<Vec<_>>().join("  ");
                text.push_str(&format!("  {}\n", line.trim_end()));
            }
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("  {}\n", harmless(note))));
        text
    }

    /// Text is aligned left, numbers right. The first column names the row.
    fn is_text(&self, column: usize) -> bool {
        let number = |cell: &String| {
            cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'))
                && !cell.contains(',')
        };
        column == 0 || !self.rows.iter().filter_map(|row| row.get(column)).any(number)
    }

    fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", marked(&self.title));
        if !self.columns.is_empty() && !self.rows.is_empty() {
            let marked = |cells: &Vec<String>| -> Vec<String> {
                cells.iter().map(|cell| marked(cell)).collect()
            };
            let side = |i| if self.is_text(i) { Side::Left } else { Side::Right };
            let columns: Vec<(String, Side)> =
                marked(&self.columns).into_iter().zip((0..).map(side)).collect();
            let rows: Vec<Vec<String>> = self.rows.iter().map(marked).collect();
            text.push_str(&markdown_table(&columns, &rows));
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("- {}\n", marked(note))));
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A table in Markdown, from cells that are Markdown already.
pub fn markdown_table(columns: &[(String, Side)], rows: &[Vec<String>]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let heading: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let rules: Vec<&str> = columns
        .iter()
        .map(|(_, side)| match side {
            Side::Left => "---",
            Side::Right => "---:",
        })
        .collect();
    let mut text = format!("{}|{}|\n", line(&heading), rules.join("|"));
    for row in rows {
        text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    text
}

/// Names of hosts and file systems may contain anything; a table has one line per row.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The same for Markdown, with its special characters escaped.
fn marked(text: &str) -> String {
    let mut marked = String::new();
    for c in harmless(text).chars() {
        if matches!(c, '|' | '*' | '`' | '<' | '[' | '\\') {
            marked.push('\\');
        }
        marked.push(c);
    }
    marked
}

/// Nanoseconds per byte, with three significant digits.
pub fn ns(value: f64) -> String {
    digits(value)
}

/// Nanoseconds, shown as microseconds.
pub fn us(value_ns: f64) -> String {
    digits(value_ns / 1e3)
}

/// Bytes a second, shown as megabytes a second.
pub(crate) fn mega(rate: f64) -> String {
    digits(rate / 1e6)
}

pub fn percent(share: f64) -> String {
    match share.is_finite() {
        true => format!("{:.1} %", share * 100.0),
        false => "no end".into(),
    }
}

/// With its sign.
pub(crate) fn signed_percent(share: f64) -> String {
    match share.is_finite() {
        true if share.abs() < 0.0005 => "0.0 %".into(),
        true => format!("{:+.1} %", share * 100.0),
        false => "no end".into(),
    }
}

/// A request size: `64K`, `1M`.
pub fn size(bytes: u32) -> String {
    base::units::Bytes(u64::from(bytes)).typed()
}

/// Three significant digits; a number below a millionth is 0.
fn digits(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "-".into(),
        size if size < 5e-7 => "0".into(),
        size => {
            let places = (2.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{value:.places$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let mut sheet = Sheet::new("T", &["size", "ns"]);
        sheet.row(vec!["64K".into(), ns(1.9)]);
        sheet.row(vec!["a|b\u{1b}".into(), ns(f64::NAN)]);
        sheet.note("n");
        assert_eq!(sheet.write(Form::Text), "T\n  size    ns\n  64K   1.90\n  a|b      -\n  n\n");
        assert_eq!(
            sheet.write(Form::Markdown),
            "### T\n\n| size | ns |\n|---|---:|\n| 64K | 1.90 |\n| a\\|b  | - |\n\n- n\n\n"
        );
        assert_eq!(Sheet::new("empty", &["a"]).write(Form::Text), "empty\n");
    }

    #[test]
    fn numbers() {
        let cases = [(0.0, "0"), (0.012345, "0.0123"), (0.95, "0.950"), (-3.21, "-3.21")];
        for (value, expect) in cases {
            assert_eq!(digits(value), expect);
        }
        assert_eq!((digits(45.23), digits(6543.0)), ("45.2".into(), "6543".into()));
        assert_eq!((percent(0.456), signed_percent(-0.05)), ("45.6 %".into(), "-5.0 %".into()));
    }
}
