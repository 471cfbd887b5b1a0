//! The model that a host has: how it is found, how it travels, and what is believed of one that
//! came from a peer.

use std::path::Path;

use super::Store;
use crate::base::fault::{Class, Fault};
use crate::base::limits::MODEL_BYTES_MAX;
use crate::model::HostModel;
use crate::model::whole::Whole;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::whole::Route;
    use crate::model::whole::planted::planted_whole;

    #[test]
    fn a_peers_model_is_believed_only_when_it_is_sound() {
        let model = HostModel { cpus: 2, whole: Some(planted_whole()), ..HostModel::default() };
        let text = told(&model);
        assert!(text.len() <= MODEL_BYTES_MAX, "{}", text.len());
        // The last digit of a number may be lost on the way.
        let routes = |model: &HostModel| model.whole.as_ref().map_or(0, |whole| whole.routes.len());
        assert_eq!(routes(&heard(&text).unwrap()), routes(&model));
        let spoil = |what: &dyn Fn(&mut Whole)| {
            let mut whole = planted_whole();
            what(&mut whole);
            serde_json::to_string(&HostModel { whole: Some(whole), ..HostModel::default() })
                .unwrap()
        };
        let hostile = [
            String::new(),
            "{".into(),
            "[]".into(),
            "[".repeat(20_000),
            "x".repeat(40_000),
            text.replace("\"whole\":{", "\"whole\":null,\"w\":{"),
            spoil(&|whole| whole.cpus = 0),
            spoil(&|whole| whole.routes[0].elapsed.file_s = -1.0),
            spoil(&|whole| whole.routes[0].cpu_sink.fixed_s = 1e9),
            spoil(&|whole| whole.routes[0].bytes_max = f64::NAN),
            spoil(&|whole| whole.routes[0].sink = "\u{1b}[2J".into()),
            spoil(&|whole| whole.routes = vec![Route::default(); 1000]),
        ];
        for text in hostile {
            assert_eq!(heard(&text), None, "{}", &text[..text.len().min(80)]);
        }
    }

    #[test]
    fn a_model_is_found_in_a_store_and_what_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/results.db");
        assert_eq!(model(&path).unwrap(), None, "none is no error");
        let ours = HostModel {
            host: host(),
            cpus: 2,
            whole: Some(planted_whole()),
            ..HostModel::default()
        };
        let mut store = Store::open(&path).unwrap();
        assert_eq!(model(&path).unwrap(), None, "nothing was measured yet");
        store.put_model(&HostModel { host: "another".into(), ..ours.clone() }).unwrap();
        assert_eq!(model(&path).unwrap(), None, "another host's is not ours");
        store.put_model(&ours).unwrap();
        // While somebody else has it open, and afterwards.
        assert_eq!(model(&path).unwrap().unwrap().whole.unwrap().routes.len(), 12);
        let mut odd = planted_whole();
        odd.routes[0].elapsed.file_s = -1.0;
        store.put_model(&HostModel { whole: Some(odd), ..ours }).unwrap();
        drop(store);
        let fault = model(&path).unwrap_err();
        assert!(fault.text.contains("below zero"), "{fault}");
        for (text, damaged) in [("", false), ("{\"host\":", true)] {
            std::fs::write(&path, text).unwrap();
            match model(&path) {
                Ok(found) => assert!(found.is_none() && !damaged, "{text}"),
                Err(fault) => {
                    assert!(damaged && fault.class == Class::Local, "{fault}");
                    assert!(fault.text.contains("--results"), "{fault}");
                }
            }
        }
        assert_eq!(model(folder.path()).unwrap(), None, "a folder is no store");
    }
}
