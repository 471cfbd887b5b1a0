//! What a page of runs/ states: cells of its tables, where the measurement is not kept as data.

use super::Done;

/// The text of a page.
pub(super) struct Page(pub(super) String);

impl Page {
    /// A cell of the first table behind a text, by the first cell of its row and the name of its
    /// column. The name of a row may go on: an interval or the conditions follow.
    fn cell(&self, behind: &str, row: &str, column: &str) -> Done<String> {
        let missing = |what: &str| format!("no {what} behind '{behind}'");
        let (_, rest) = self.0.split_once(behind).ok_or(format!("'{behind}' is not there"))?;
        let lines = rest.lines().skip_while(|line| !line.starts_with('|'));
        let mut table = lines.take_while(|line| line.starts_with('|')).map(cells);
        let names = table.next().ok_or(missing("table"))?;
        let at = names.iter().position(|name| name == column).ok_or(missing(column))?;
        let found = table.find(|cells| cells[0].starts_with(row)).ok_or(missing(row))?;
        Ok(found[at].clone())
    }

    /// The same as a number: what follows it, an interval or a unit, is left out.
    fn number(&self, behind: &str, row: &str, column: &str) -> Done<f64> {
        let text = self.cell(behind, row, column)?;
        let first = text.split_whitespace().next().unwrap_or_default();
        first.parse().map_err(|_| format!("{row}, {column}: '{text}' is no number"))
    }

    /// Costs of a byte and of a request of a part, as the table of all parts has them.
    fn costs(&self, part: &str) -> Done<String> {
        let of = |column: &str| self.number(PARTS, part, column);
        let (byte, request) = (of("Cb ns/B")?, of("Cr us")?);
        let start = match self.cell(PARTS, part, "Cs us")?.as_str() {
            "-" => String::new(),
            _ => format!(", {} µs more where the device was idle", of("Cs us")?),
        };
        Ok(format!("{byte} ns a byte and {request} µs a request{start}"))
    }

    /// How far the costs of a whole are from the sums of its parts.
    fn off(&self, whole: &str) -> Done<String> {
        let because =
            self.cell("### Verdicts, with CPU time from runs beside", whole, "because")?;
        let (off, rest) = because.split_once(" at most, ").ok_or("no error")?;
        let middle = rest.split(" median").next().unwrap_or_default();
        Ok(format!("{off} at most, {middle} in the median"))
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_string()).collect()
}

pub(super) fn rates_by_cpu(page: &Page) -> Done<String> {
    let rate = |quota: &str| page.number("By quota:", quota, "Mbit/s");
    let (low, half, high) = (rate("10")?, rate("50")?, rate("100")?);
    let known = page.cell("- tar:", "c/x is known", "seen")?;
    Ok(format!(
        "compressed rate {low} Mbit/s with 10 % of a CPU, {half} with 50 %, {high} with all of it; \
         compressing takes {known} times as long as decompressing"
    ))
}

/// Zeros and noise without compression, and with the levels 6, 9 and 1, as the report lists them.
pub(super) fn through_ssh(page: &Page) -> Done<String> {
    let of = |data: &str| -> Done<String> {
        let rate = |tool: &str| page.number("Mbit/s of payload:", tool, data);
        let all: Done<Vec<String>> = ["off", "zlib:6", "zlib:9", "zlib:1"]
            .into_iter()
            .map(|tool| Ok(format!("{:.1}", rate(tool)? / 8.0)))
            .collect();
        Ok(all?.join(", "))
    };
    Ok(format!("zeros {} MB/s; noise {} MB/s", of("zeros")?, of("noise")?))
}

pub(super) fn isolated(page: &Page) -> Done<String> {
    let of = |scenario: &str| page.number("### Runs", scenario, "counted");
    Ok(format!(
        "each part measured alone, in runs that passed the gates: disk source {}, disk sink {}, \
         network sender and receiver {}, and the pump {}",
        of("disk-source")?,
        of("disk-sink")?,
        of("net")?,
        of("cpu")?
    ))
}

pub(super) fn disks(page: &Page) -> Done<String> {
    let (source, sink) = (page.costs("disk source")?, page.costs("disk sink")?);
    Ok(format!("source {source}; sink {sink}"))
}

pub(super) fn networks(page: &Page) -> Done<String> {
    // A part that takes bytes from the network is the receiver.
    let (sender, receiver) = (page.costs("network sink")?, page.costs("network source")?);
    Ok(format!(
        "sender {}; receiver {}",
        sender.replace("the device was idle", "TCP sends a segment"),
        receiver.replace("the device was idle", "TCP sends a segment")
    ))
}

pub(super) fn disk_to_disk(page: &Page) -> Done<String> {
    let of = |column: &str| page.number("### Table 5.", "1M", column);
    Ok(format!(
        "{} MB/s in requests of 1 MiB; {} ns a byte, {} predicted from the parts; over all sizes \
         off by {}",
        of("observed MB/s")?,
        of("observed ns/B")?,
        of("predicted ns/B")?,
        page.off("disk-disk at the source")?
    ))
}

pub(super) fn over_network(page: &Page) -> Done<String> {
    let of = |table: &str, column: &str| page.number(table, "1M", column);
    let rate = of("### Table 6.", "observed MB/s")?;
    let (sender, receiver) =
        (of("### Table 6.", "observed ns/B")?, of("### Table 7.", "observed ns/B")?);
    let whole = page.cell("### Verdicts, with", "disk-net-disk at the source", "outcome")?;
    Ok(format!(
        "{rate} MB/s in requests of 1 MiB, over loopback; the sender works {sender} ns a byte, the \
         receiver {receiver}; the comparison with the parts is {whole}, as both ends had one disk"
    ))
}

pub(super) fn sums(page: &Page) -> Done<String> {
    let pump = page.costs("pump")?;
    let off = page.off("disk-disk at the source")?;
    Ok(format!(
        "the pump {pump}, the other parts as above; their sum is off by {off} for disk to disk"
    ))
}

const PARTS: &str = "### Table 8.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_row_and_column() {
        let page = Page(
            "### A\n\n| x | y us |\n|---|---:|\n| one | 1 |\n\n### B\ntext\n| part | Cb ns/B |\n\
             |---|---|\n| disk source (a) | 0.5 \\[0.4, 0.6] |\n"
                .into(),
        );
        assert_eq!(page.cell("### A", "one", "y us").unwrap(), "1");
        assert_eq!(page.number("### B", "disk source", "Cb ns/B").unwrap(), 0.5);
        for (behind, row, column) in
            [("### C", "one", "x"), ("### A", "two", "x"), ("### B", "disk", "y us")]
        {
            assert!(page.cell(behind, row, column).is_err(), "{behind} {row} {column}");
        }
    }
}
