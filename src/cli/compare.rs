//! `datapump compare`: how two trees differ. A dry run of the copy that would make one the mirror
//! of the other finds it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::options::copying;
use super::order::{Show, stores_of};
use super::patterns;
use super::progress::Collected;
use super::settings::{remote, ssh_to};
use super::typed::Typed;
use super::{Conclusion, conclude, first_phase, start, watched};
use analysis::report::compare::Compared;
use analysis::report::files::Direction;
use analysis::report::json::{self, EndEvent};
use analysis::report::live::count;
use base::fault::Class;
use base::job::{Job, Location, Outcome, Remote};
use base::limits::STORE_REQUEST_BYTES;
use base::settings::{Delete, Overwrite, Settings, SkipUnchanged};
use mover::io::reach::Reach;
use mover::remote::copy;
use s3::S3;

#[derive(Debug)]
pub(crate) struct CompareArgs {
    job: Job,
    stores: s3::Options,
    /// Both ends as they were typed.
    shown: [String; 2],
    show: Show,
}

impl CompareArgs {
    pub(super) fn of(typed: &Typed) -> Result<CompareArgs, String> {
        // clap has made sure that both are there.
        let [a, b] = ["A", "B"].map(|name| typed.word(name).unwrap_or_default());
        let shown = [&a, &b].map(|word| word.to_string_lossy().into_owned());
        let (a, b) = (end(&a, Role::Source)?, end(&b, Role::Target)?);
        if let (Some(first), Some(second)) = (&a.host, &b.host) {
            return Err(format!(
                "comparing {first} with {second} (host to host) is not supported: run datapump on \
                 {first}"
            ));
        }
        let is_at_store = [&a, &b].iter().any(|end| matches!(end.location, Location::Object(_)));
        let far = remote(typed)?;
        let port = a.port.or(b.port);
        let job = Job {
            sources: vec![a.location],
            source_host: a.host,
            target: b.location,
            target_host: b.host,
            settings: settings(typed, is_at_store)?,
            listed: None,
            range: None,
            remote: Remote { ssh: ssh_to(far.ssh.clone(), port, None), ..far },
        };
        let show = Show { direction: Direction::Compared, ..Show::of(typed)? };
        Ok(CompareArgs { job, stores: stores_of(typed)?, shown, show })
    }

    fn by(&self) -> &'static str {
        match self.job.settings.skip_unchanged {
            SkipUnchanged::Checksum => "contents",
            _ => "size and time",
        }
    }
}

fn end(word: &OsStr, role: Role) -> Result<EndArg, String> {
    let end = EndArg::parse(word, role, 0)?;
    match end.location {
        Location::Path(_) | Location::Object(_) => Ok(end),
        _ => Err(format!(
            "'{}' cannot be compared: name a file, a folder or s3://BUCKET/KEY",
            word.to_string_lossy()
        )),
    }
}

/// Those of a mirror's dry run.
fn settings(typed: &Typed, is_at_store: bool) -> Result<Settings, String> {
    let mut settings = Settings {
        compare: true,
        dry_run: true,
        recursive: true,
        overwrite: Overwrite::Always,
        delete: Delete::On,
        skip_unchanged: match typed.has(&copying::CHECKSUM) {
            true => SkipUnchanged::Checksum,
            false => SkipUnchanged::Times,
        },
        filters: patterns::filters(typed)?,
        ..Settings::default()
    };
    if is_at_store {
        settings.request_bytes = STORE_REQUEST_BYTES;
    }
    Ok(settings)
}

pub(super) fn run(args: &CompareArgs, started: Instant) -> u8 {
    let CompareArgs { job, stores, shown: [a, b], show } = args;
    let console = Arc::new(Console::new(*show, started));
    console.event(&start("compare", vec![a.clone()], Some(b.clone()), None));
    patterns::without_effect(&job.settings.filters).iter().for_each(|text| console.warning(text));
    let first = first_phase(&console, job.source_host.as_ref().or(job.target_host.as_ref()));
    let reach = Reach::Stores(Arc::new(S3::new(stores.clone())));
    let (result, collected) =
        watched(&console, first, None, None, |watch| copy::run_in(job, &reach, watch));
    let conclusion = result.map(|outcome| concluded(&outcome, &collected, args.by()));
    conclude(&console, conclusion, collected)
}

fn concluded(outcome: &Outcome, collected: &Collected, by: &str) -> Conclusion {
    let compared =
        Compared { equal: outcome.kept.saturating_sub(collected.adjusted), ..collected.compared };
    let differences = compared.differences();
    let differ =
        || (Class::SomeFailed, format!("A and B differ in {}", count(differences, "name")));
    let failed = outcome
        .worst
        .map(|class| (class, format!("{} could not be compared", count(outcome.failed, "name"))));
    let trouble = failed.or_else(|| (differences > 0).then(differ));
    let end = json::end(trouble.as_ref().map(|(class, _)| *class), None);
    Conclusion {
        summary: compared.summary(by),
        run: None,
        trouble,
        end: EndEvent { compared: Some(compared), ..end },
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn of(line: &str) -> Result<CompareArgs, String> {
        let words = std::iter::once("datapump").chain(line.split_whitespace()).map(OsString::from);
        CompareArgs::of(&Typed::parse(&words.collect::<Vec<_>>()).unwrap())
    }

    #[test]
    fn what_is_compared() {
        let args = of("compare a h:b --checksum --exclude x").unwrap();
        assert_eq!(args.job.target_host.as_deref(), Some("h"));
        assert_eq!((args.by(), &args.job.settings.filters[..]), ("contents", &["x".into()][..]));
        assert_eq!(of("compare h:a b").unwrap().by(), "size and time");
        for (line, expect) in [
            ("compare h:a g:b", "comparing h with g (host to host) is not supported"),
            ("compare - b", "'-' cannot be compared: name a file, a folder or s3://"),
            ("compare a null:", "'null:' cannot be compared"),
        ] {
            let why = of(line).unwrap_err();
            assert!(why.starts_with(expect), "{line}: {why}");
        }
    }
}
