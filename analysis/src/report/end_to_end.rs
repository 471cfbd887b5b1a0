//! What whole copies cost, as a table.

use super::sheet::{Sheet, ns, percent, us};
use crate::model::end_to_end::cost::Cost;
use crate::model::end_to_end::{EndToEnd, Route};
use base::settings::Settings;

/// Of every route, a row for the time, and one for the CPU of each side.
pub fn sheet(whole: &EndToEnd) -> Sheet {
    let mut sheet = Sheet::new("What copies cost", COLUMNS);
    let mut routes: Vec<&Route> = whole.routes.iter().collect();
    routes.sort_by_key(|route| (&route.carrier, &route.source, &route.sink, route.cold));
    for route in routes {
        let of_sink = ("CPU of the sink", &route.cpu_sink);
        let alone = route.carrier == "memory";
        let costs = match alone {
            true => vec![("time", &route.elapsed), ("CPU", &route.cpu_source)],
            false => {
                vec![("time", &route.elapsed), ("CPU of the source", &route.cpu_source), of_sink]
            }
        };
        for (what, cost) in costs {
            sheet.row(row(route, what, cost));
        }
    }
    sheet.note(format!(
        "A copy costs its start (with {} streams) + files x per file + bytes x per byte; large are \
         files of 16 MiB and more. Nine of ten copies are within the error, a factor both ways.",
        Settings::default().streams
    ));
    sheet
}

fn row(route: &Route, what: &str, cost: &Cost) -> Vec<String> {
    let cache = if route.cold { ", cold" } else { "" };
    let start_s = cost.fixed_s + f64::from(Settings::default().streams) * cost.lane_s;
    vec![
        format!("{}: {} to {}{cache}", route.carrier, route.source, route.sink),
        what.to_string(),
        route.copies.to_string(),
        format!("{:.1}", start_s * 1e3),
        us(cost.file_s * 1e9),
        ns(cost.small_byte_s * 1e9),
        ns(cost.large_byte_s * 1e9),
        percent(cost.spread.exp() - 1.0),
    ]
}

const COLUMNS: &[&str] =
    &["route", "what", "copies", "start ms", "µs/file", "small ns/B", "large ns/B", "error"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sheet::Form;

    #[test]
    fn each_route_has_its_rows() {
        let cost = |start: f64| Cost {
            fixed_s: start,
            lane_s: 0.001,
            file_s: 5e-5,
            small_byte_s: 1e-9,
            large_byte_s: 0.5e-9,
            spread: 0.1,
        };
        let route = |carrier: &str, cold| Route {
            carrier: carrier.into(),
            source: "ext4".into(),
            sink: "tmpfs".into(),
            cold,
            copies: 27,
            elapsed: cost(0.02),
            ..Route::default()
        };
        let routes = vec![route("tcp", true), route("memory", false)];
        let text = sheet(&EndToEnd { cpus: 2, fitted_unix_s: 0.0, routes }).write(Form::Text);
        insta::assert_snapshot!("end_to_end", text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 1 + 2 + 3 + 1, "{text}");
        assert!(lines[2].contains("memory: ext4 to tmpfs "), "{text}");
        assert!(lines[4].contains("tcp: ext4 to tmpfs, cold"), "{text}");
        for cell in ["24.0", "50.0", "1.00", "0.500", "10.5 %"] {
            assert!(lines[2].contains(cell), "{cell} in {text}");
        }
    }
}
