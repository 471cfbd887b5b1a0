//! `datapump clean`: removes what abandoned copies have left below a folder, or in a store.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::options::{copying, stores};
use super::order::{Show, stores_of};
use super::progress::Collected;
use super::typed::Typed;
use super::words::quote;
use super::{Conclusion, conclude, start};
use analysis::report::files::{self, Dry};
use analysis::report::json;
use analysis::report::live::count;
use base::fault::Class;
use base::job::{CleanEvent, Cleaned, Cleaning, Location, ObjectUrl};
use mover::pump::sink::clean;

#[derive(Debug)]
pub(crate) struct CleanArgs {
    roots: Vec<Root>,
    /// The roots as they were typed.
    shown: Vec<String>,
    cleaning: Cleaning,
    /// Uploads that are younger may be under way.
    age_min: Duration,
    stores: s3::Options,
    show: Show,
}

/// Where to clean.
#[derive(Debug)]
enum Root {
    Folder(PathBuf),
    Store(ObjectUrl),
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
            age_min: typed.value_or_default(&stores::MIN_AGE)?.into(),
            stores: stores_of(typed)?,
            show: Show::of(typed)?,
        })
    }
}

/// A folder of this host, or a store.
fn root(word: &OsStr) -> Result<Root, String> {
    match EndArg::parse(word, Role::Target, 0)? {
        EndArg { host: None, location: Location::Path(path), .. } => Ok(Root::Folder(path)),
        EndArg { host: Some(host), location: Location::Path(path), .. } => Err(format!(
            "clean works on this host: run it there, as in ssh {host} datapump clean {}",
            quote(&path.to_string_lossy())
        )),
        EndArg { location: Location::Object(url), .. } => Ok(Root::Store(url)),
        _ => Err("clean needs a folder, or s3://BUCKET/KEY".into()),
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
    let stores = s3::S3::new(args.stores.clone());
    for root in &args.roots {
        let mut tell = |sight: &CleanEvent| {
            console.event(&json::cleaned(sight, dry));
            match sight {
                CleanEvent::Failed(fault) => {
                    collected.failed_count += 1;
                    console.error(&fault.text);
                }
                told => console.summary(&files::sight(told, dry)),
            }
        };
        let cleaned = match root {
            Root::Folder(folder) => clean::clean(folder, args.cleaning, &mut tell),
            Root::Store(url) => stores.clean(url, args.age_min, args.cleaning, &mut tell),
        };
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
