//! `datapump results`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use super::args::Options;
use super::knobs::FORMATS;
use super::record;
use super::{voice, written};
use crate::base::fault::{Class, Fault};
use crate::record::export::{Format, What};
use crate::record::paths;
use crate::record::sample::{Environment, Record};
use crate::report::{escape, results as page};
use crate::results::{Filter, Store};

/// What is to be done with results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    List,
    Show,
    Export(Format),
}

pub fn run(
    action: &OsString,
    runs: &[OsString],
    options: &Options,
    _started: Instant,
) -> Result<u8, String> {
    let action = meant(action, options)?;
    if options.export == What::Paths && action == Action::Export(Format::Parquet) {
        return Err("--what paths: export writes csv or json, not parquet".into());
    }
    let ids: Vec<i64> = runs.iter().map(number).collect::<Result<_, _>>()?;
    if action == Action::Show && ids.is_empty() {
        return Err("show needs the number of a run; 'datapump results list' has them".into());
    }
    let newest = (action == Action::List && ids.is_empty()).then_some(options.limit);
    let filter =
        Filter { ids, newest, experiment: options.experiment.clone(), ..Filter::default() };
    Ok(perform(action, &filter, options).unwrap_or_else(|fault| {
        voice::print_line(&mut io::stderr(), &format!("datapump: {fault}"));
        fault.class.exit_code()
    }))
}

fn meant(action: &OsString, options: &Options) -> Result<Action, String> {
    let format = options.format.map_or("json", |at| FORMATS[at]);
    match action.to_str() {
        Some("list") => Ok(Action::List),
        Some("show") => Ok(Action::Show),
        Some("export") => Format::ALL
            .into_iter()
            .find(|(name, _)| *name == format)
            .map(|(_, format)| Action::Export(format))
            .ok_or_else(|| format!("--format '{format}': export writes csv, json or parquet")),
        _ => Err(format!("results '{}': write list, show or export", action.to_string_lossy())),
    }
}

pub fn number(word: &OsString) -> Result<i64, String> {
    let number = word.to_str().and_then(|word| word.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| {
        let word = word.to_string_lossy();
        format!("run '{word}': write its number, as 'datapump results list' shows it")
    })
}

fn perform(action: Action, filter: &Filter, options: &Options) -> Result<u8, Fault> {
    let path = record::store_path(options)?;
    let store = Store::open_existing(&path)?;
    let records = store.records(filter)?;
    let missing = filter.ids.iter().find(|id| !records.iter().any(|run| run.id == **id));
    if let Some(id) = missing {
        let path = path.display();
        let text = format!(
            "there is no run {id} in '{path}'; 'datapump results list' shows those that are there"
        );
        return Err(Fault::new(Class::Local, text));
    }
    match action {
        Action::List => Ok(told("the list of runs", &mut |out| {
            out.write_all(escape::page(&page::list(&records)).as_bytes())
        })),
        Action::Show => {
            let environments = environments(&store, &records)?;
            let mut pages = Vec::new();
            for record in records {
                let record = Record { paths: store.paths(record.id)?, ..record };
                pages.push(page::show(&record, &environments));
            }
            Ok(told("the runs", &mut |out| {
                out.write_all(escape::page(&pages.join("\n")).as_bytes())
            }))
        }
        Action::Export(format) => {
            let paths_of = |record: &Record| {
                store.paths(record.id).map_err(|fault| io::Error::other(fault.text))
            };
            let mut write = |out: &mut dyn Write| match (options.export, format) {
                (What::Paths, Format::Csv) => paths::csv(&records, &paths_of, out),
                _ => format.write(&records, &paths_of, out),
            };
            put(format, options.output.as_deref(), &mut write)
        }
    }
}

/// Records for other programs, to a file or to standard output.
pub fn export(
    store: &Store,
    records: &[Record],
    format: Format,
    output: Option<&Path>,
) -> Result<u8, Fault> {
    let paths_of =
        |record: &Record| store.paths(record.id).map_err(|fault| io::Error::other(fault.text));
    put(format, output, &mut |out| format.write(records, &paths_of, out))
}

fn put(
    format: Format,
    output: Option<&Path>,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<u8, Fault> {
    match output {
        Some(file) => into_file(file, write).map(|()| 0),
        None if format == Format::Parquet && io::stdout().is_terminal() => {
            Err(Fault::usage("parquet is not for terminals: name a file with --output"))
        }
        None => Ok(told("the runs", write)),
    }
}

pub fn environments(
    store: &Store,
    records: &[Record],
) -> Result<BTreeMap<i64, Environment>, Fault> {
    let mut environments = BTreeMap::new();
    let sides = records.iter().flat_map(|run| std::iter::once(&run.source).chain(&run.sink));
    for id in sides.map(|side| side.environment) {
        if let Some(environment) = store.environment_of(id)? {
            environments.insert(id, environment);
        }
    }
    Ok(environments)
}

/// To standard output.
fn told(what: &str, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> u8 {
    let mut out = BufWriter::new(io::stdout().lock());
    written(what, write(&mut out).and_then(|()| out.flush()))
}

/// Wholly or not at all, and never in place of another file.
pub fn into_file(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Fault> {
    let failed = |why: &io::Error| Fault::write("write", path, why);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Its mode is that of any new file, the umask taken off.
    let mut builder = tempfile::Builder::new();
    builder.permissions(Permissions::from_mode(0o666));
    let temporary = builder.tempfile_in(folder.unwrap_or(Path::new(".")));
    let mut temporary = temporary.map_err(|why| failed(&why))?;
    let mut out = BufWriter::new(temporary.as_file_mut());
    write(&mut out).and_then(|()| out.flush()).map_err(|why| failed(&why))?;
    drop(out);
    temporary.persist_noclobber(path).map(|_| ()).map_err(|why| match why.error.kind() {
        io::ErrorKind::AlreadyExists => Fault::new(
            Class::Local,
            format!("'{}' is there already: remove it, or name another file", path.display()),
        ),
        _ => failed(&why.error),
    })
}
