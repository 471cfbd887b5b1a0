//! Shared by the pages in `runs/`.

use analysis::report::sheet::{Side, markdown_table};

/// A table from cells that are Markdown already, aligned left.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let columns: Vec<_> = columns.iter().map(|name| (name.to_string(), Side::Left)).collect();
    markdown_table(&columns, rows)
}
