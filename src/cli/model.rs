//! `datapump model`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use super::args::Options;
use super::voice;
use crate::base::fault::{Class, Fault};
use crate::lab::model::curve::Curve;
use crate::lab::model::fit::Known;
use crate::lab::observations;
use crate::report::curves;
use crate::report::sheet::Form;

pub fn run(
    action: &OsString,
    words: &[OsString],
    options: &Options,
    _started: Instant,
) -> Result<u8, String> {
    let action = action.to_string_lossy();
    if let (Some(word), "fit" | "show") = (words.first(), &*action) {
        return Err(format!("'{}': model {action} takes no words", word.to_string_lossy()));
    }
    match (&*action, &options.input) {
        ("fit", Some(path)) => Ok(ended(strangers(path, options))),
        ("fit" | "show", _) => Err("model fit needs --input until runs are stored".into()),
        (other, _) => Err(format!("model has no '{other}'; write fit, show or predict")),
    }
}

/// The exit code of a command; a fault is named.
fn ended(result: Result<(), Fault>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(fault) => {
            voice::print(&mut io::stderr(), &format!("datapump: {fault}\n"));
            fault.class.exit_code()
        }
    }
}

/// Measurements by anything.
fn strangers(path: &Path, options: &Options) -> Result<(), Fault> {
    let text = read(path)?;
    let name = match path == Path::new("-") {
        true => "standard input".to_string(),
        false => format!("'{}'", path.display()),
    };
    let wrong = |why: String| Fault::new(Class::Local, format!("{name}: {why}"));
    let runs = observations::read(&text).map_err(wrong)?;
    let curve = Curve::of(&runs, Known::default(), None, options.seed)
        .map_err(|why| wrong(why.to_string()))?;
    match form(options) {
        Some(form) => {
            print(&curves::curve(&format!("Cost of a byte in {name}"), &curve).write(form))
        }
        None => print_json(&curve),
    }
    Ok(())
}

/// `None` for JSON.
fn form(options: &Options) -> Option<Form> {
    match options.format {
        _ if options.json => None,
        None | Some(0) => Some(Form::Text),
        Some(1) => None,
        Some(_) => Some(Form::Markdown),
    }
}

fn print(text: &str) {
    voice::print(&mut io::stdout().lock(), text);
}

fn print_json(value: &impl serde::Serialize) {
    // Numbers without an end become null; nothing else in these can fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    print(&format!("{text}\n"));
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(
            File::open(path).map_err(|why| Fault::io("open the measurements", path, &why))?,
        ),
    };
    let mut input = input.take(INPUT_BYTES_MAX + 1);
    input.read_to_end(&mut text).map_err(|why| Fault::io("read the measurements", path, &why))?;
    match text.len() as u64 > INPUT_BYTES_MAX {
        true => Err(Fault::new(
            Class::Local,
            format!(
                "'{}' has more than {} MiB of measurements; fit a part of them",
                path.display(),
                INPUT_BYTES_MAX >> 20
            ),
        )),
        false => Ok(text),
    }
}

/// A million rows: resampling them takes minutes already.
const INPUT_BYTES_MAX: u64 = 32 << 20;
