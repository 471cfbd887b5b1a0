//! What the pages in `runs/` have in common.

use analysis::report::sheet::{Side, markdown_table};

/// A table whose cells are Markdown already, each at the left of its column.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let columns: Vec<_> = columns.iter().map(|name| (name.to_string(), Side::Left)).collect();
    markdown_table(&columns, rows)
}
