//! The model that a host has: how it is found, how it travels, and what is believed of one that
//! came from a peer.

use std::path::Path;

use super::Whole;
use crate::base::fault::{Class, Fault};
use crate::base::limits::{MODEL_BYTES_MAX, NAME_BYTES_MAX};
use crate::lab::model::HostModel;
use crate::lab::results::Store;

/// The model of this host in a store; `None` where there is none.
pub fn model(store: &Path) -> Result<Option<HostModel>, Fault> {
    let Some(model) = Store::glance(store, &host())? else { return Ok(None) };
    match model.whole.as_ref().is_none_or(Whole::is_sound) {
        true => Ok(Some(model)),
        false => Err(Fault::new(
            Class::Local,
            format!(
                "the cost model in '{}' cannot be used (a cost is not a number, or below zero): \
                 make it anew with datapump measure",
                store.display()
            ),
        )),
    }
}

/// The name that this host's models have.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
