//! `datapump config show`: the value of each option of `copy`, and where it comes from.

use std::ffi::OsString;

use serde::Serialize;

use super::command_id::CommandId;
use super::config::{self, Given, Origin};
use super::console;
use super::endpoint;
use super::options;
use super::options::moving::CONFIG;
use super::options::showing::JSON;
use super::order::Form;
use super::typed::Typed;

/// The arguments of `config show`.
#[derive(Debug)]
pub(crate) struct ShowConfigArgs {
    /// What is set, those that others override first.
    given: Vec<Given>,
    form: Form,
}

/// One option as it counts.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    option: &'static str,
    value: String,
    /// `default`, `defaults`, `host`, `profile` or `environment`.
    from: &'static str,
    /// The file, variable or profile, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// The pattern of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

impl ShowConfigArgs {
    pub(super) fn of(typed: &Typed) -> Result<ShowConfigArgs, String> {
        let host = typed.word("HOST");
        let host = host.map(|host| endpoint::host_as_typed(&host)).transpose()?;
        let file = typed.value(&CONFIG)?.map(OsString::from);
        let file = file.map(|value| Given { option: &CONFIG, value, origin: Origin::Typed });
        let given: Vec<Given> = file.into_iter().collect();
        let given = config::complete(given, CommandId::Copy, host.as_deref(), typed.outside())?;
        let form = if typed.has(&JSON) { Form::Json } else { Form::Text };
        Ok(ShowConfigArgs { given, form })
    }
}

pub(super) fn run(args: &ShowConfigArgs) -> u8 {
    let rows = rows(&args.given);
    match args.form {
        Form::Json => {
            for row in &rows {
                console::say_json(&serde_json::to_string(row).expect("a row is plain text"));
            }
            0
        }
        Form::Text => console::show_page("the settings", &page(&rows)),
    }
}

/// Each option that has a value, in the order of `--help`; of several patterns each.
fn rows(given: &[Given]) -> Vec<Row> {
    let mut rows = Vec::new();
    for option in options::of(CommandId::Copy) {
        let description = option.description();
        let all = given.iter().filter(|given| given.option.description().name == description.name);
        let skipped = match option.shape() {
            options::Shape::Values => 0,
            _ => all.clone().count().saturating_sub(1),
        };
        let mut set = all.skip(skipped).filter(|given| given.origin != Origin::Typed).peekable();
        if set.peek().is_none() && !description.default.is_empty() {
            rows.push(Row {
                option: description.name,
                value: description.default.into(),
                from: "default",
                name: None,
                line: None,
                host: None,
            });
        }
        rows.extend(set.map(row));
    }
    rows
}

fn row(given: &Given) -> Row {
    let value = match given.option.shape() {
        options::Shape::Nothing => "true".into(),
        _ => given.value.to_string_lossy().into_owned(),
    };
    let (from, name, line, host) = match &given.origin {
        Origin::Typed => ("default", None, None, None),
        Origin::Environment { variable } => ("environment", Some(variable.clone()), None, None),
        Origin::Profile { name } => ("profile", Some(name.clone()), None, None),
        Origin::File { path, line, table } => {
            let path = path.display().to_string();
            match table {
                None => ("defaults", Some(path), Some(*line), None),
                Some(host) => ("host", Some(path), Some(*line), Some(host.clone())),
            }
        }
    };
    Row { option: given.option.description().name, value, from, name, line, host }
}

fn page(rows: &[Row]) -> String {
    let width = |column: fn(&Row) -> &str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
    };
    let (options, values) = (width(|row| row.option), width(|row| &row.value));
    rows.iter()
        .map(|row| {
            let from = match (&row.name, row.line, &row.host) {
                (Some(path), Some(line), Some(host)) => format!("{path}:{line} [host.\"{host}\"]"),
                (Some(path), Some(line), None) => format!("{path}:{line} [defaults]"),
                (Some(name), _, _) => format!("{} {name}", row.from),
                (None, _, _) => row.from.to_string(),
            };
            format!("{:options$}  {:values$}  {from}\n", row.option, row.value)
        })
        .collect()
}
