//! The model that a host has: where it is kept, how it travels, and what is believed of one that
//! came from a peer.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Whole;
use crate::base::fault::{Class, Fault};
use crate::base::limits::{MODEL_BYTES_MAX, NAME_BYTES_MAX};
use crate::lab::model::HostModel;
use crate::lab::results::Store;

/// Where the model of this host is kept: `DATAPUMP_MODEL`, else `model.json` beside the results.
/// `None` where there is no home, or where the variable is there and empty.
pub fn path() -> Option<PathBuf> {
    match std::env::var_os("DATAPUMP_MODEL") {
        Some(path) => (!path.is_empty()).then(|| PathBuf::from(path)),
        None => Store::default_path().map(|results| results.with_file_name("model.json")),
    }
}

/// The model at a path; `None` where there is none.
pub fn load(path: &Path) -> Result<Option<HostModel>, Fault> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Fault::io("read the cost model", path, &error)),
    };
    let model: HostModel =
        serde_json::from_str(&text).map_err(|why| unusable(path, &why.to_string()))?;
    match model.whole.as_ref().is_none_or(Whole::is_sound) {
        true => Ok(Some(model)),
        false => Err(unusable(path, "a cost is not a number, or below zero")),
    }
}

fn unusable(path: &Path, why: &str) -> Fault {
    let text = format!(
        "the cost model '{}' cannot be used ({why}): remove it, or measure again with \
         datapump measure all",
        path.display()
    );
    Fault::new(Class::Local, text)
}

/// Puts a model in its place, whole or not at all.
pub fn save(path: &Path, model: &HostModel) -> Result<(), Fault> {
    let fault = |error: &std::io::Error| Fault::io("write the cost model", path, error);
    let text = serde_json::to_string_pretty(model)
        .map_err(|why| fault(&std::io::Error::other(why.to_string())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| fault(&error))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| fault(&error))?;
    file.write_all(text.as_bytes()).map_err(|error| fault(&error))?;
    file.as_file().sync_all().map_err(|error| fault(&error))?;
    file.persist(path).map(drop).map_err(|error| fault(&error.error))
}

/// What a far side tells of its host's model: what a prediction needs, or nothing.
pub fn told(model: &HostModel) -> String {
    let short = HostModel { components: Vec::new(), ..model.clone() };
    let known = model.whole.is_some();
    let text =
        if known { serde_json::to_string(&short).unwrap_or_default() } else { String::new() };
    if text.len() <= MODEL_BYTES_MAX { text } else { String::new() }
}

/// A peer's model, where it is one that can be believed: what is wrong with it is the peer's loss.
pub fn heard(text: &str) -> Option<HostModel> {
    if text.is_empty() || text.len() > MODEL_BYTES_MAX {
        return None;
    }
    let model: HostModel = serde_json::from_str(text).ok()?;
    let known = model.whole.as_ref().is_some_and(Whole::is_sound);
    let short = HostModel { components: Vec::new(), host: String::new(), ..model };
    known.then_some(short)
}

impl Whole {
    /// True when every number in it can be calculated with.
    pub fn is_sound(&self) -> bool {
        let sound = |number: f64| number.is_finite() && (0.0..=COST_MAX).contains(&number);
        let large = |number: f64| number.is_finite() && (0.0..=COUNT_MAX).contains(&number);
        let routes = self.routes.iter().all(|route| {
            let costs = [&route.elapsed, &route.cpu_source, &route.cpu_sink];
            let names = [&route.carrier, &route.source, &route.sink];
            costs.into_iter().all(|cost| cost.numbers().into_iter().all(sound))
                && names.into_iter().all(|name| is_plain(name))
                && large(route.bytes_max)
                && large(route.files_max)
        });
        routes && self.routes.len() <= ROUTES_MAX && (1..=CPUS_MAX).contains(&self.cpus)
    }
}

/// Names are printed; nothing in them may move a cursor.
fn is_plain(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.chars().all(|c| c.is_ascii_graphic())
}

/// Seconds that anything may cost: a byte, a file, a copy.
const COST_MAX: f64 = 1e6;
const COUNT_MAX: f64 = 1e18;
const ROUTES_MAX: usize = 64;
const CPUS_MAX: u32 = 1 << 16;
