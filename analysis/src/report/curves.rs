//! A fitted curve as a table: observed and predicted cost at every request size.

use super::sheet::{Sheet, mega, ns, percent, signed_percent, size, us};
use crate::model::curve::{Curve, Knee, cpu_bound_rate, request_share_bytes};
use crate::model::fit::{Fit, Intervals, SizeFit, balance_bytes};
use crate::model::{Component, HostModel};
use crate::statistics::Estimate;
use crate::study::compositions::name;
use base::units::Bytes;

/// Observed, predicted and error at every request size; below, the costs and how well they fit.
pub fn curve(title: &str, curve: &Curve) -> Sheet {
    let mut sheet = match curve.has_depths() {
        false => Sheet::new(title, SIZE_COLUMNS),
        true => Sheet::new(title, &[&["depth"], SIZE_COLUMNS, &["starts/request"]].concat()),
    };
    for seen in curve.sizes() {
        let mut row = size_row(seen);
        if curve.has_depths() {
            row.insert(0, seen.depth.to_string());
            let starts = seen.starts_per_byte * f64::from(seen.request_bytes);
            row.push(format!("{starts:.2}"));
        }
        sheet.row(row);
    }
    for fit in &curve.fits {
        costs(fit).into_iter().for_each(|line| sheet.note(line));
    }
    if let Some(line) = knee(curve) {
        sheet.note(line);
    }
    sheet
}

pub(crate) const SIZE_COLUMNS: &[&str] =
    &["request size", "n", "observed ns/B", "predicted ns/B", "error", "signed"];

pub(crate) fn size_row(seen: &SizeFit) -> Vec<String> {
    vec![
        size(seen.request_bytes),
        seen.n.to_string(),
        ns(seen.observed_ns),
        ns(seen.predicted_ns),
        percent(seen.symmetric_error()),
        signed_percent(seen.signed_error()),
    ]
}

/// The results of one fit, one per line.
pub fn costs(fit: &Fit) -> Vec<String> {
    let range = match (fit.sizes.first(), fit.sizes.last()) {
        (Some(first), Some(last)) => {
            format!("{} to {}", size(first.request_bytes), size(last.request_bytes))
        }
        _ => "no size".into(),
    };
    let mut lines = vec![format!(
        "{range}: Cb = {} ns/B, Cr = {} µs{}{}",
        interval(fit.cb_ns, ns),
        interval(fit.cr_ns, us),
        fit.cs_ns.map_or(String::new(), |cs| format!(", Cs = {} µs", interval(cs, us))),
        match fit.known.cb_ns != 0.0 || fit.known.cr_ns != 0.0 {
            true => " (without the pump's own)",
            false => "",
        }
    )];
    lines.extend(match *fit.at_bound.names() {
        [] => None,
        [one] => Some(at_bound(one, fit)),
        ref several => Some(format!("{} are at their bounds 0", several.join(" and "))),
    });
    lines.extend(balance(fit));
    if let Some(line) = fit.theil_sen {
        lines.push(format!(
            "a second fit that outliers hardly move (Theil-Sen, without bounds): Cb = {} ns/B, \
             Cr = {} µs{}",
            ns(line.intercept),
            us(line.slope),
            if fit.cs_ns.is_some() { ", starts subtracted" } else { "" }
        ));
    }
    lines.push(format!(
        "error: {} at most, {} median, over {} cells and {} runs{}",
        percent(fit.max_error()),
        percent(fit.median_error()),
        fit.sizes.len(),
        fit.n,
        match fit.left_out {
            0 => String::new(),
            left_out => format!("; {left_out} runs without bytes or a CPU time are left out"),
        }
    ));
    lines.push(adequacy(fit));
    lines
}

/// A bound on a cost leaves a trend over the sizes.
fn at_bound(which: &str, fit: &Fit) -> String {
    let ends = [fit.sizes.first(), fit.sizes.last()].map(|size| size.map(SizeFit::signed_error));
    let trend = match ends {
        [Some(first), Some(last)] => format!(
            "; the misfit that this leaves goes from {} at the smallest size to {} at the largest",
            signed_percent(first),
            signed_percent(last)
        ),
        _ => String::new(),
    };
    format!("{which} is at its bound 0: unconstrained it would be negative{trend}")
}

fn adequacy(fit: &Fit) -> String {
    let verdict = if fit.adequate() { "adequate" } else { "not adequate" };
    let judged = match (fit.lack_of_fit, fit.intervals) {
        (Some(lack), _) => format!(
            "lack of fit F({}, {}) = {}, p = {:.3}",
            lack.degrees.0,
            lack.degrees.1,
            if lack.f < 1e6 { format!("{:.2}", lack.f) } else { "over a million".into() },
            lack.p
        ),
        (None, Intervals::Residuals) => {
            format!(
                "lack of fit is judged by the largest error, {}: with one value a size there is no \
                 F test, and intervals are from residuals",
                percent(fit.max_error())
            )
        }
        (None, Intervals::Runs) => {
            "as many parameters as cells: any data would fit, so there is no F test".to_string()
        }
    };
    format!("{verdict}: {judged} (F passes, or no error above 10 %)")
}

fn balance(fit: &Fit) -> Option<String> {
    // Where a byte costs nothing there is no balance.
    let balance = balance_bytes(fit.cb_ns.value, fit.cr_ns.value)
        .filter(|_| !fit.cb_ns.holds(0.0) && fit.cr_ns.value > 0.0)?;
    let typed = |bytes: f64| Bytes(bytes as u64).to_string();
    let largest = fit.sizes.last()?;
    let rate = cpu_bound_rate(1, largest.predicted_ns)?;
    Some(format!(
        "RS* = Cr/Cb = {}, where a request costs as much as its bytes; requests cost at most 10 % \
         of bytes from {}; computed, not measured: one CPU would move {} MB/s in requests of {}",
        typed(balance),
        typed(request_share_bytes(balance, 0.1)),
        mega(rate),
        size(largest.request_bytes),
    ))
}

/// The cost of a host's parts, from its stored model.
pub fn host(model: &HostModel) -> Sheet {
    let mut sheet = Sheet::new(
        format!("Host {}: {}from {}", model.host, of_cpus(model), model.experiment),
        &["part", "sizes", "Cb ns/B", "Cr µs", "Cs µs", "RS*", "measured MB/s", "at"],
    );
    for part in &model.components {
        let best = part.bandwidth.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
        for regime in &part.regimes {
            sheet.row(vec![
                words(part),
                format!("{} to {}", size(regime.request_bytes_min), size(regime.request_bytes_max)),
                interval(regime.cb_ns, ns),
                interval(regime.cr_ns, us),
                regime.cs_ns.map_or("-".into(), |cs| interval(cs, us)),
                balance_text(regime.cb_ns, regime.cr_ns),
                best.map_or("-".into(), |(_, rate)| mega(rate.value)),
                best.map_or("-".into(), |(at, _)| size(*at)),
            ]);
        }
    }
    sheet.note(
        "RS* = Cr/Cb: the request size where a request costs as much as its bytes; unknown where \
         either costs too little to be told from nothing",
    );
    sheet.note("measured MB/s: the best rate at any request size, and that size");
    sheet.note("the pump's own cost is subtracted once from every other part");
    sheet.note(
        "Cs: additional cost of a request submitted with no other file request of its lane in \
         flight; - where Cr includes it",
    );
    sheet.note("from runs without a soaker, by clocks, where there are any");
    sheet
}

/// How many CPUs a host has, in front of what follows; nothing where that is not known.
pub(crate) fn of_cpus(model: &HostModel) -> String {
    match model.cpus {
        0 => String::new(),
        1 => "1 CPU, ".into(),
        count => format!("{count} CPUs, "),
    }
}

/// RS* in a table. Where a byte may cost nothing, or a request nothing, there is no such size.
pub(super) fn balance_text(cb_ns: Estimate, cr_ns: Estimate) -> String {
    let balance = balance_bytes(cb_ns.value, cr_ns.value);
    match balance.filter(|bytes| !cb_ns.holds(0.0) && (1.0..BALANCE_MAX).contains(bytes)) {
        Some(bytes) => Bytes(bytes as u64).to_string(),
        None => "unknown".into(),
    }
}

/// No request is so large: a cost of a byte that gives more is as good as none.
const BALANCE_MAX: f64 = 1_099_511_627_776.0;

fn words(part: &Component) -> String {
    match part.conditions.as_str() {
        "" => name(part.part).to_string(),
        words => format!("{} ({words})", name(part.part)),
    }
}

fn knee(curve: &Curve) -> Option<String> {
    Some(match curve.knee {
        Knee::None | Knee::NotNeeded => return None,
        Knee::At(bytes) => format!(
            "two fits: above {} the requests in flight leave the cache of a core",
            size(bytes)
        ),
        Knee::TooFewSizes => {
            "one fit is not adequate, and one side of the cache's knee has fewer than three sizes: \
             measure more"
                .into()
        }
        Knee::DoesNotPay => "two fits are hardly better than one".into(),
    })
}

pub fn interval(estimate: Estimate, form: fn(f64) -> String) -> String {
    match estimate.low == estimate.high {
        true => form(estimate.value),
        false => {
            format!("{} [{}, {}]", form(estimate.value), form(estimate.low), form(estimate.high))
        }
    }
}
