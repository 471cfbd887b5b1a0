//! The model of this host, read from the store.

use std::path::Path;

use super::Store;
use analysis::model::HostModel;
use analysis::model::end_to_end::EndToEnd;
use base::fault::{Class, Fault};

/// The model of this host in a store; `None` where there is none.
pub fn model(store: &Path) -> Result<Option<HostModel>, Fault> {
    let Some(model) = Store::glance(store, &host())? else { return Ok(None) };
    match model.whole.as_ref().is_none_or(EndToEnd::is_sound) {
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

/// The host name under which this host's models are stored.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::model::end_to_end::Route;

    #[test]
    fn a_model_is_found_in_a_store_and_what_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/results.db");
        assert_eq!(model(&path).unwrap(), None, "none is no error");
        let whole = EndToEnd { cpus: 2, routes: vec![Route::default(); 3], ..EndToEnd::default() };
        let ours =
            HostModel { host: host(), cpus: 2, whole: Some(whole.clone()), ..HostModel::default() };
        let mut store = Store::open(&path).unwrap();
        assert_eq!(model(&path).unwrap(), None, "nothing was measured yet");
        store.put_model(&HostModel { host: "another".into(), ..ours.clone() }).unwrap();
        assert_eq!(model(&path).unwrap(), None, "another host's is not ours");
        store.put_model(&ours).unwrap();
        // While another connection has it open, and afterwards.
        assert_eq!(model(&path).unwrap().unwrap().whole.unwrap().routes.len(), 3);
        let mut odd = whole;
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
