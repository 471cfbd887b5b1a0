//! `datapump clean`: removes what abandoned copies have left below a folder.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Instant;

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::options::copying;
use super::order::Show;
use super::progress::Collected;
use super::typed::Typed;
use super::words::quote;
use super::{Conclusion, conclude, start};
use analysis::report::files::{self, Dry};
use analysis::report::json;
use analysis::report::live::count;
use base::fault::Class;
use base::job::{CleanEvent, Cleaned, Location};
use mover::pump::sink::clean::{self, Cleaning};

#[derive(Debug)]
pub(crate) struct CleanArgs {
    roots: Vec<PathBuf>,
    /// The roots as they were typed.
    shown: Vec<String>,
    cleaning: Cleaning,
    show: Show,
}

impl CleanArgs {
    pub(super) fn of(typed: &Typed) -> Result<CleanArgs, String> {
        let paths = typed.words("PATH");
        Ok(CleanArgs {
            roots: paths.iter().map(|path| root(path)).collect::<Result<_, _>>()?,
            shown: paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            cleaning: match typed.has(&copying::DRY_RUN) {
                true => Cleaning::Tell,
                false => Cleaning::Remove,
            },
            show: Show::of(typed)?,
        })
    }
}

/// A folder to clean: always of this host.
fn root(word: &OsStr) -> Result<PathBuf, String> {
    match EndArg::parse(word, Role::Target, 0)? {
        EndArg { host: None, location: Location::Path(path), .. } => Ok(path),
        EndArg { host: Some(host), location: Location::Path(path), .. } => Err(format!(
            "clean works on this host: run it there, as in ssh {host} datapump clean {}",
            quote(&path.to_string_lossy())
        )),
        EndArg { location: Location::Object(url), .. } => Err(format!(
            "'{url}' is in an object store, which removes uploads that broke by its own rules: \
             clean needs a folder of this host"
        )),
        _ => Err("clean needs a folder".into()),
    }
}

pub(super) fn run(args: &CleanArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    let dry = match args.cleaning {
        Cleaning::Tell => Dry::Yes,
        Cleaning::Remove => Dry::No,
    };
    console.event(&start("clean", args.shown.clone(), None, None));
    let mut collected = Collected::default();
    let mut all = Cleaned::default();
    for root in &args.roots {
        let cleaned = clean::clean(root, args.cleaning, &mut |sight| {
            console.event(&json::cleaned(sight, dry));
            match sight {
                CleanEvent::Failed(fault) => {
                    collected.failed_count += 1;
                    console.error(&fault.text);
                }
                told => console.summary(&files::sight(told, dry)),
            }
        });
        all.add(&cleaned);
    }
    let end = json::end((all.failed > 0).then_some(Class::SomeFailed), None);
    let conclusion = Conclusion {
        run: None,
        summary: files::cleaned(&all, dry),
        trouble: (all.failed > 0)
            .then(|| (Class::SomeFailed, format!("{} not cleaned", count(all.failed, "place")))),
        end,
    };
    conclude(&console, Ok(conclusion), collected)
}
