//! `datapump ls`: what is in a folder, here or at another host, or in an object store.

use std::sync::Arc;
use std::time::Instant;

use super::console::Console;
use super::endpoint::ReadAt;
use super::options::showing;
use super::order::{Show, stores_of};
use super::settings::remote;
use super::typed::Typed;
use super::{Conclusion, conclude, first_phase, start, watched};
use analysis::report::json;
use analysis::report::listing as page;
use base::fault::{Class, Fault};
use base::job::ObjectUrl;
use base::listing::Item;
use mover::folder_listing::{self, Sums};
use mover::io::reach::Reach;
use mover::io::store::Stores;
use mover::pump::watch::Watch;
use mover::remote::asking;
use s3::S3;

#[derive(Debug)]
pub(crate) struct LsArgs {
    at: ReadAt,
    sums: Sums,
    stores: s3::Options,
    /// The place as it was typed.
    shown: String,
    show: Show,
}

impl LsArgs {
    pub(super) fn of(typed: &Typed) -> Result<LsArgs, String> {
        let word = typed.word("PATH").unwrap_or_else(|| ".".into());
        Ok(LsArgs {
            at: ReadAt::of(&word, remote(typed)?)?.ok_or_else(|| {
                format!(
                    "'{}' has no contents to list: name a folder, HOST:PATH or s3://BUCKET/KEY",
                    word.to_string_lossy()
                )
            })?,
            sums: if typed.has(&showing::SUMS) { Sums::Yes } else { Sums::No },
            stores: stores_of(typed)?,
            shown: word.to_string_lossy().into_owned(),
            show: Show::of(typed)?,
        })
    }
}

pub(super) fn run(args: &LsArgs, started: Instant) -> u8 {
    let console = Arc::new(Console::new(args.show, started));
    console.event(&start("ls", vec![args.shown.clone()], None, None));
    let first = first_phase(&console, args.at.host());
    let (result, collected) = watched(&console, first, None, None, |watch| list(args, watch));
    let conclusion = result.map(|mut items| {
        items.sort_by(|a, b| a.name.cmp(&b.name));
        items.iter().for_each(|item| console.event(&json::item(item)));
        let end = json::end(None, None);
        Conclusion { summary: page::page(&items), run: None, trouble: None, end }
    });
    conclude(&console, conclusion, collected)
}

fn list(args: &LsArgs, watch: &Arc<Watch>) -> Result<Vec<Item>, Fault> {
    match &args.at {
        ReadAt::Here(path) => folder_listing::of_path(path, args.sums, &Reach::Host, watch),
        ReadAt::There(launch, path) => asking::list(launch, path, args.sums, watch),
        ReadAt::Store(url) => at_store(url, args, watch),
    }
}

/// What is below a key, or the object that has it.
fn at_store(url: &ObjectUrl, args: &LsArgs, watch: &Arc<Watch>) -> Result<Vec<Item>, Fault> {
    let stores = S3::new(args.stores.clone());
    let stopped = watch.clone();
    stores.stop_when(Arc::new(move || stopped.stopping()));
    let open = |key: String| stores.open(&ObjectUrl { bucket: url.bucket.clone(), key });
    let key = url.key.trim_end_matches('/');
    if !url.means_folder() {
        let (folder, name) = url.key.rsplit_once('/').unwrap_or(("", &url.key));
        let above = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        if let Some(found) = open(above)?.look(name.as_bytes())? {
            return Ok(vec![folder_listing::of_object(found)]);
        }
    }
    let store = open(if key.is_empty() { String::new() } else { format!("{key}/") })?;
    store.check()?;
    let items = folder_listing::of_store(&*store, args.sums, watch)?;
    match items.is_empty() && !key.is_empty() {
        true => Err(Fault::new(Class::Local, format!("'{url}': there are no such objects"))),
        false => Ok(items),
    }
}
