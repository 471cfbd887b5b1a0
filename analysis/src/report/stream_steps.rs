//! How a copy chose its number of streams, as text.

use super::live::count;
use crate::record::sample::StreamStep;
use base::stream_steps::StepReason;

/// A line for each trial with its result, and one for why the number stays; empty without steps.
pub fn page(steps: &[StreamStep]) -> String {
    let Some(first) = steps.first() else { return String::new() };
    let mut text = format!("\nthe number of streams\n  {} at first\n", first.from);
    for (at, step) in steps.iter().enumerate() {
        if let Some(line) = line(step, &steps[at + 1..]) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// A trial with its result, which is among the steps after it; or why the number stays. `None` for
/// a result.
fn line(step: &StreamStep, after: &[StreamStep]) -> Option<String> {
    let reason = StepReason::parse(&step.reason)?;
    let at = format!("{:.1} s", step.at_s);
    if let Some(because) = because(reason) {
        let of_trial = |step: &&StreamStep| step.reason != StepReason::Compare.name();
        let result = match after.iter().find(of_trial) {
            Some(result) => ended(result),
            None => NOT_JUDGED.to_string(),
        };
        return Some(format!("{} → {} streams at {at}: {because}; {result}", step.from, step.to));
    }
    let stays = stays(reason).filter(|_| step.from == step.to)?;
    // What gained nothing twice is told by the last of those trials, too.
    let is_result = step.after_bytes_per_s.is_some();
    (!is_result).then(|| format!("{} from {at} on: {stays}", count(step.to.into(), "stream")))
}

/// Why another number was tried.
fn because(reason: StepReason) -> Option<&'static str> {
    Some(match reason {
        StepReason::ReceiveWindow => "the receive window held each stream back",
        StepReason::SendBuffer => "the send buffer held each stream back",
        StepReason::Losses => "losses by chance held each stream back",
        StepReason::Cpu => "each stream's thread was busy, and there are more CPUs",
        StepReason::Queue => "a queue stood, so fewer may fill the path as well",
        _ => return None,
    })
}

/// Why the number stays.
fn stays(reason: StepReason) -> Option<&'static str> {
    Some(match reason {
        StepReason::PathFull => "a queue stood: the path is full",
        StepReason::Most => "no more are allowed, or fit into the memory",
        StepReason::NoGain => "more gained nothing twice",
        StepReason::NothingSeen => "nothing was seen that more would help against",
        StepReason::Time => "another trial would have been over too late",
        StepReason::Late => "streams were not open, or had not ended, in time",
        StepReason::Short => "the copy ended before the number was settled",
        _ => return None,
    })
}

/// How a trial ended.
fn ended(result: &StreamStep) -> String {
    let times = match (result.before_bytes_per_s, result.after_bytes_per_s) {
        (Some(before), Some(after)) if before > 0.0 => {
            format!("{:.2} times the rate", after / before)
        }
        _ => "at a rate that was not measured".to_string(),
    };
    match StepReason::parse(&result.reason) {
        Some(StepReason::Gain | StepReason::AsFast) => format!("kept: {times}"),
        Some(StepReason::NoGain | StepReason::Slower) => format!("taken back: {times}"),
        Some(StepReason::Others) => {
            let streams = count(result.to.into(), "stream");
            format!("{streams} from then on, as others fill the path too ({times})")
        }
        Some(StepReason::Late) => "taken back: streams were not open in time".to_string(),
        _ => NOT_JUDGED.to_string(),
    }
}

const NOT_JUDGED: &str = "the copy ended before that was judged";

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at_s: f64, from: u16, to: u16, reason: StepReason) -> StreamStep {
        StreamStep { at_s, from, to, reason: reason.name().into(), ..StreamStep::default() }
    }

    fn judged(step: StreamStep, before: f64, after: f64) -> StreamStep {
        let (before_bytes_per_s, after_bytes_per_s) = (Some(before), Some(after));
        StreamStep { before_bytes_per_s, after_bytes_per_s, ..step }
    }

    #[test]
    fn each_trial_has_its_result() {
        assert_eq!(page(&[]), "");
        let steps = [
            step(1.4, 4, 16, StepReason::ReceiveWindow),
            judged(step(2.8, 16, 4, StepReason::Compare), 1e6, 3.9e6),
            judged(step(5.0, 4, 16, StepReason::Gain), 1e6, 3.9e6),
            step(6.4, 16, 32, StepReason::Losses),
            judged(step(8.0, 32, 16, StepReason::NoGain), 2e6, 2.04e6),
            step(9.5, 16, 8, StepReason::Queue),
            judged(step(11.0, 8, 4, StepReason::Others), 2e6, 1e6),
        ];
        let expect = "\nthe number of streams\n  4 at first\n  \
                      4 → 16 streams at 1.4 s: the receive window held each stream back; kept: \
                      3.90 times the rate\n  \
                      16 → 32 streams at 6.4 s: losses by chance held each stream back; taken \
                      back: 1.02 times the rate\n  \
                      16 → 8 streams at 9.5 s: a queue stood, so fewer may fill the path as well; \
                      4 streams from then on, as others fill the path too (0.50 times the rate)\n";
        assert_eq!(page(&steps), expect);
    }

    #[test]
    fn why_the_number_stays_is_told() {
        let told = |steps: &[StreamStep]| page(steps).lines().last().unwrap_or("").to_string();
        let full = step(3.0, 1, 1, StepReason::PathFull);
        assert_eq!(told(&[full]), "  1 stream from 3.0 s on: a queue stood: the path is full");
        let broken = [step(1.4, 4, 8, StepReason::Losses), step(2.0, 8, 8, StepReason::Short)];
        let text = page(&broken);
        assert!(text.contains("4 → 8 streams at 1.4 s") && text.contains(NOT_JUDGED), "{text}");
        for reason in StepReason::ALL {
            let one = page(&[step(1.0, 4, 4, *reason)]);
            let is_result = because(*reason).is_none() && stays(*reason).is_none();
            assert_eq!(one.lines().count(), if is_result { 3 } else { 4 }, "{reason:?}: {one}");
        }
    }
}
