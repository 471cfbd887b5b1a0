//! The model of a host as it is sent to a peer, and the checks of one that was received.

use base::limits::MODEL_BYTES_MAX;

use super::HostModel;
use super::end_to_end::EndToEnd;

/// The part of this host's model that a prediction needs, as text for the peer; or nothing.
pub fn told(model: &HostModel) -> String {
    let short = HostModel { components: Vec::new(), ..model.clone() };
    let known = model.whole.is_some();
    let text =
        if known { serde_json::to_string(&short).unwrap_or_default() } else { String::new() };
    if text.len() <= MODEL_BYTES_MAX { text } else { String::new() }
}

/// A peer's model, if it is sound; any other is ignored, at the peer's expense alone.
pub fn heard(text: &str) -> Option<HostModel> {
    if text.is_empty() || text.len() > MODEL_BYTES_MAX {
        return None;
    }
    let model: HostModel = serde_json::from_str(text).ok()?;
    let known = model.whole.as_ref().is_some_and(EndToEnd::is_sound);
    let short = HostModel { components: Vec::new(), host: String::new(), ..model };
    known.then_some(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::end_to_end::Route;
    use crate::model::end_to_end::planted::planted_end_to_end;

    #[test]
    fn a_peers_model_is_believed_only_when_it_is_sound() {
        let model =
            HostModel { cpus: 2, whole: Some(planted_end_to_end()), ..HostModel::default() };
        let text = told(&model);
        assert!(text.len() <= MODEL_BYTES_MAX, "{}", text.len());
        // The last digit of a number may be lost in the text.
        let routes = |model: &HostModel| model.whole.as_ref().map_or(0, |whole| whole.routes.len());
        assert_eq!(routes(&heard(&text).unwrap()), routes(&model));
        let spoil = |what: &dyn Fn(&mut EndToEnd)| {
            let mut whole = planted_end_to_end();
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
}
