//! `datapump results`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::console::{self, written};
use super::options::recording::{
    COMMAND, EXPERIMENT, EXPORT_FORMAT, LIMIT, MATCH, OUTPUT, RESULTS, SETTINGS_TOO, SINCE, WHAT,
};
use super::record;
use super::typed::Typed;
use crate::measure;
use crate::results::{Filter, Store};
use analysis::record::export::{Format, What};
use analysis::record::paths;
use analysis::record::sample::{Environment, Record};
use analysis::report::results as page;
use base::fault::{Class, Fault};

/// The arguments of `results list`.
#[derive(Debug)]
pub(crate) struct ListArgs {
    filter: Filter,
    store: Option<PathBuf>,
}

/// The arguments of `results show`: one run at least.
#[derive(Debug)]
pub(crate) struct ShowRunsArgs {
    filter: Filter,
    detail: page::Detail,
    store: Option<PathBuf>,
}

/// The arguments of `results export`.
#[derive(Debug)]
pub(crate) struct ExportArgs {
    filter: Filter,
    format: Format,
    what: What,
    output: Option<PathBuf>,
    store: Option<PathBuf>,
}

impl ListArgs {
    pub(super) fn of(typed: &Typed) -> Result<ListArgs, String> {
        let ids = numbers(typed)?;
        let limit = typed.value_or_default(&LIMIT)?;
        let newest = ids.is_empty().then_some(limit);
        let filter = Filter { ids, newest, ..filter(typed)? };
        Ok(ListArgs { filter, store: typed.value(&RESULTS)? })
    }
}

impl ShowRunsArgs {
    pub(super) fn of(typed: &Typed) -> Result<ShowRunsArgs, String> {
        let ids = numbers(typed)?;
        if ids.is_empty() {
            return Err("show needs the number of a run; 'datapump results list' has them".into());
        }
        let filter = Filter { ids, ..Filter::default() };
        let detail = match typed.has(&SETTINGS_TOO) {
            true => page::Detail::All,
            false => page::Detail::Usual,
        };
        Ok(ShowRunsArgs { filter, detail, store: typed.value(&RESULTS)? })
    }
}

impl ExportArgs {
    pub(super) fn of(typed: &Typed) -> Result<ExportArgs, String> {
        let format = typed.value_or_default(&EXPORT_FORMAT)?;
        let what = typed.value_or_default(&WHAT)?;
        if what == What::Paths && format == Format::Parquet {
            return Err("--what paths: export writes csv or json, not parquet".into());
        }
        Ok(ExportArgs {
            filter: Filter { ids: numbers(typed)?, ..filter(typed)? },
            format,
            what,
            output: typed.value(&OUTPUT)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

/// The runs that the options select.
fn filter(typed: &Typed) -> Result<Filter, String> {
    let since = typed.value(&SINCE)?;
    Ok(Filter {
        command: typed.value(&COMMAND)?,
        containing: typed.value(&MATCH)?,
        since_unix_s: since.map(|since| since.unix_s(measure::unix_s())),
        experiment: typed.value(&EXPERIMENT)?,
        ..Filter::default()
    })
}

pub(super) fn list(args: &ListArgs) -> u8 {
    ended(
        found(&args.filter, args.store.as_deref())
            .map(|(_, records)| console::show_page("the list of runs", &page::list(&records))),
    )
}

pub(super) fn show(args: &ShowRunsArgs) -> u8 {
    let pages = || {
        let (store, records) = found(&args.filter, args.store.as_deref())?;
        let environments = environments(&store, &records)?;
        let mut pages = Vec::new();
        for record in records {
            let record = Record { paths: store.paths(record.id)?, ..record };
            pages.push(page::show(&record, &environments, args.detail));
        }
        Ok(pages.join("\n"))
    };
    ended(pages().map(|text| console::show_page("the runs", &text)))
}

pub(super) fn export(args: &ExportArgs) -> u8 {
    let ExportArgs { filter, format, what, output, store } = args;
    ended(found(filter, store.as_deref()).and_then(|(store, records)| {
        let paths_of =
            |record: &Record| store.paths(record.id).map_err(|fault| io::Error::other(fault.text));
        put(*format, output.as_deref(), &mut |out| match (what, format) {
            (What::Paths, Format::Csv) => paths::csv(&records, &paths_of, out),
            _ => format.write(&records, &paths_of, out),
        })
    }))
}

/// The exit code of a command; a fault is printed.
pub(super) fn ended(result: Result<u8, Fault>) -> u8 {
    result.unwrap_or_else(|fault| {
        console::say_fault(&fault);
        fault.class.exit_code()
    })
}

fn numbers(typed: &Typed) -> Result<Vec<i64>, String> {
    typed.words("RUN").iter().map(number).collect()
}

pub(super) fn number(word: &OsString) -> Result<i64, String> {
    let number = word.to_str().and_then(|word| word.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| {
        let word = word.to_string_lossy();
        format!("run '{word}': write its number, as 'datapump results list' shows it")
    })
}

/// The store, and the runs in it that are asked for.
fn found(filter: &Filter, store: Option<&Path>) -> Result<(Store, Vec<Record>), Fault> {
    let path = record::store_path(store)?;
    let store = Store::open_existing(&path)?;
    let records = store.records(filter)?;
    // Other conditions may leave out a run that is there.
    let by_number = Filter { ids: filter.ids.clone(), newest: filter.newest, ..Filter::default() };
    let missing = filter.ids.iter().find(|id| !records.iter().any(|run| run.id == **id));
    if let Some(id) = missing.filter(|_| *filter == by_number) {
        let path = path.display();
        let text = format!(
            "there is no run {id} in '{path}'; 'datapump results list' shows those that are there"
        );
        return Err(Fault::new(Class::Local, text));
    }
    Ok((store, records))
}

/// Records for other programs, to a file or to standard output.
pub(crate) fn write_runs(
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
        None if format == Format::Parquet && console::is_for_a_terminal() => {
            Err(Fault::usage("parquet is not for terminals: name a file with --output"))
        }
        None => Ok(told("the runs", write)),
    }
}

pub(crate) fn environments(
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

/// Writes to standard output.
fn told(what: &str, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> u8 {
    let mut out = BufWriter::new(console::data());
    written(what, write(&mut out).and_then(|()| out.flush()))
}

/// Writes a file completely or not at all, and never replaces another.
pub(crate) fn into_file(
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
            format!("'{}' exists: remove it, or name another file", path.display()),
        ),
        _ => failed(&why.error),
    })
}
