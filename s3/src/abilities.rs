//! What a store can do: found out by what it refuses, kept for the run, and told once. Each request
//! that writes has several forms, of which a store without the newer parts of S3 takes one.

use std::sync::Mutex;

use crate::checksum;
use crate::client::{Call, Called, Client, Into, Trouble, lock};
use crate::reading;
use crate::refusal::Refusal;
use crate::tags;
use crate::upload::refused_late;
use mover::io::volume::Replace;

/// Of one endpoint. It begins with all that S3 has.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    found: Mutex<Found>,
    /// One request tries other forms; the others wait for what it finds.
    trial: Mutex<()>,
    warnings: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    check: Check,
    /// By kinds of request: the store takes them without a condition only.
    unconditional: [bool; KINDS],
    /// By kinds of request: one with this check, and one with a condition, was accepted.
    proved: [(Option<Check>, bool); KINDS],
    trials_in_vain: u32,
    refuses_markers: bool,
    /// It refuses to be asked for checksums.
    tells_no_sums: bool,
}

/// Requests that a store may know conditions of, or checksums, and not of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Begin,
    Part,
    Complete,
    Copy,
}

const KINDS: usize = 5;

/// How a store checks what it is sent; the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Check {
    #[default]
    Crc64,
    Md5,
    /// By the hash that the signature has.
    Signed,
}

impl Check {
    /// What a body with this CRC-64/NVME is sent with.
    pub(crate) fn headers(self, body: &[u8], sum: u64) -> Vec<(String, String)> {
        match self {
            Check::Crc64 => vec![("x-amz-checksum-crc64nvme".into(), checksum::written(sum))],
            Check::Md5 => vec![("content-md5".into(), tags::content_md5(body))],
            Check::Signed => Vec::new(),
        }
    }

    /// A body that has its checksum in a header is not hashed again for the signature.
    pub(crate) fn is_header(self) -> bool {
        self != Check::Signed
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    is_conditional: bool,
    check: Check,
}

impl Form {
    /// Other forms, the better first: a store that knows conditions is never asked without.
    fn others(self, kind: Kind, replace: Replace) -> Vec<Form> {
        let checks = match kind {
            Kind::Copy => &[self.check][..],
            _ => &[Check::Crc64, Check::Md5, Check::Signed],
        };
        let checks = || checks.iter().filter(|check| **check as u8 >= self.check as u8);
        let with =
            |is_conditional| checks().map(move |check| Form { is_conditional, check: *check });
        let mut forms: Vec<Form> = with(self.is_conditional).collect();
        if self.is_conditional && replace == Replace::Never {
            forms.extend(with(false));
        }
        forms.retain(|form| *form != self);
        forms
    }
}

impl Client {
    /// Makes a request that writes, in the form that the store takes. `make` has the call for a
    /// check, without a condition.
    pub(crate) fn write<'a>(
        &self,
        kind: Kind,
        replace: Replace,
        make: &dyn Fn(Check) -> Call<'a>,
    ) -> Called {
        let send = |form: Form| {
            let answered = self.send(form, replace, make(form.check));
            let refusal = self.abilities.may_be_of_form(kind, (form, replace), &answered);
            (answered, refusal)
        };
        let form = self.abilities.form(kind);
        let (answered, refusal) = send(form);
        let Some(mut refusal) = refusal else { return answered };
        let _trial = lock(&self.abilities.trial);
        let known = self.abilities.form(kind);
        if known != form {
            match send(known) {
                (_, Some(again)) => refusal = again,
                (answered, None) => return answered,
            }
        }
        for other in known.others(kind, replace) {
            if let (answered, None) = send(other) {
                if is_accepted(&answered) {
                    self.abilities.keep(kind, other, &refusal);
                }
                return answered;
            }
        }
        lock(&self.abilities.found).trials_in_vain += 1;
        answered
    }

    /// Makes a request that reads, asking for the checksum where the store takes that. `ask` makes
    /// it with these headers.
    pub(crate) fn read(&self, ask: &mut dyn FnMut(Vec<(String, String)>) -> Called) -> Called {
        if lock(&self.abilities.found).tells_no_sums {
            return ask(Vec::new());
        }
        match ask(vec![("x-amz-checksum-mode".to_string(), "ENABLED".to_string())]) {
            Err(Trouble::Refused(refusal)) if refusal.may_be_of_form() => {
                let answered = ask(Vec::new());
                lock(&self.abilities.found).tells_no_sums |= answered.is_ok();
                answered
            }
            answered => answered,
        }
    }

    fn send(&self, form: Form, replace: Replace, mut call: Call<'_>) -> Called {
        match (replace, form.is_conditional) {
            (Replace::Never, true) => call.headers.push(("if-none-match".into(), "*".into())),
            (Replace::Never, false) => {
                let there = reading::look(self, call.bucket, call.key).map_err(Trouble::Lost)?;
                if there.is_some() {
                    let code = FOUND.to_string();
                    return Err(Trouble::Refused(Refusal {
                        status: 412,
                        code,
                        ..Refusal::default()
                    }));
                }
            }
            _ => {}
        }
        let answer = self.call(&call, Into::Text)?;
        refused_late(&answer).map(|_| answer)
    }
}

impl Abilities {
    pub(crate) fn check(&self) -> Check {
        lock(&self.found).check
    }

    /// The store takes no markers of folders; true the first time.
    pub(crate) fn note_no_markers(&self) -> bool {
        !std::mem::replace(&mut lock(&self.found).refuses_markers, true)
    }

    pub(crate) fn refuses_markers(&self) -> bool {
        lock(&self.found).refuses_markers
    }

    /// What follows from what was found out since the last time.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.warnings))
    }

    fn form(&self, kind: Kind) -> Form {
        let found = lock(&self.found);
        Form { is_conditional: !found.unconditional[kind as usize], check: found.check }
    }

    /// The refusal, where another form of the request might not meet it.
    fn may_be_of_form(
        &self,
        kind: Kind,
        (form, replace): (Form, Replace),
        answered: &Called,
    ) -> Option<Refusal> {
        let mut found = lock(&self.found);
        let trials_in_vain = found.trials_in_vain;
        let (check, condition) = &mut found.proved[kind as usize];
        let has_condition = form.is_conditional && replace == Replace::Never;
        if is_accepted(answered) {
            *check = Some(form.check);
            *condition |= has_condition;
            return None;
        }
        let Err(Trouble::Refused(refusal)) = answered else { return None };
        let is_proved = *check == Some(form.check) && (*condition || !has_condition);
        let may_be = !is_proved && trials_in_vain < TRIALS_IN_VAIN_MAX;
        (may_be && refusal.may_be_of_form()).then(|| refusal.clone())
    }

    /// The store takes this form, and has refused the one before.
    fn keep(&self, kind: Kind, form: Form, refusal: &Refusal) {
        let told = refusal.told();
        let mut found = lock(&self.found);
        let mut warnings = lock(&self.warnings);
        if form.check != found.check {
            found.check = form.check;
            warnings.push(match form.check {
                Check::Signed => format!(
                    "the store refuses CRC-64 and MD5 of what is sent ({told}): only the SHA-256 \
                     in each signature protects it, and the store keeps no checksum"
                ),
                _ => format!(
                    "the store refuses CRC-64 of what is sent ({told}): it checks the MD5 of each \
                     request, and keeps no checksum"
                ),
            });
        }
        if !form.is_conditional && !found.unconditional[kind as usize] {
            if !found.unconditional.contains(&true) {
                warnings.push(format!(
                    "the store knows no conditional writes ({told}): each name is looked for \
                     before it is written, and one that another writer makes in that moment is \
                     replaced"
                ));
            }
            found.unconditional[kind as usize] = true;
        }
    }
}

/// The store has taken the form: it did what was asked, or found that the name exists.
fn is_accepted(answered: &Called) -> bool {
    match answered {
        Ok(_) => true,
        Err(Trouble::Refused(refusal)) => refusal.status == 412 && refusal.code != FOUND,
        Err(Trouble::Lost(_)) => false,
    }
}

/// The name was looked for, and not written: this says nothing of what the store takes.
const FOUND: &str = "Found";
/// A store that refuses all forms has another reason: more are not tried.
const TRIALS_IN_VAIN_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a store does without is left out last, and what it knows is never left out.
    #[test]
    fn conditions_are_left_out_last() {
        let first = Form { is_conditional: true, check: Check::Crc64 };
        let told = |form: &Form| (form.is_conditional, form.check);
        let forms =
            |kind, replace| first.others(kind, replace).iter().map(told).collect::<Vec<_>>();
        use Check::{Crc64, Md5, Signed};
        assert_eq!(
            forms(Kind::Put, Replace::Never),
            [(true, Md5), (true, Signed), (false, Crc64), (false, Md5), (false, Signed)]
        );
        assert_eq!(forms(Kind::Put, Replace::Allowed), [(true, Md5), (true, Signed)]);
        assert_eq!(forms(Kind::Copy, Replace::Never), [(false, Crc64)]);
        assert_eq!(forms(Kind::Copy, Replace::Allowed), []);
        let later = Form { is_conditional: true, check: Md5 };
        let forms = later.others(Kind::Copy, Replace::Never);
        assert_eq!(forms.iter().map(told).collect::<Vec<_>>(), [(false, Md5)]);
    }

    /// One that has accepted a form refuses for other reasons later.
    #[test]
    fn what_was_accepted_is_not_tried_otherwise() {
        let refused = |status, code: &str| -> Called {
            let code = code.to_string();
            Err(Trouble::Refused(Refusal { status, code, ..Refusal::default() }))
        };
        let abilities = Abilities::default();
        let form = abilities.form(Kind::Put);
        let may_be = |replace, answered: &Called| {
            abilities.may_be_of_form(Kind::Put, (form, replace), answered).is_some()
        };
        for (status, code, expect) in [
            (501, "NotImplemented", true),
            (501, "", true),
            (400, "InvalidArgument", true),
            (400, "ExpiredToken", false),
            (400, "BadDigest", false),
            (403, "AccessDenied", false),
        ] {
            assert_eq!(may_be(Replace::Allowed, &refused(status, code)), expect, "{status} {code}");
        }
        let bad = refused(400, "InvalidArgument");
        assert!(may_be(Replace::Allowed, &bad));
        assert!(!may_be(Replace::Allowed, &Ok(crate::client::Answer::default())));
        assert!(!may_be(Replace::Allowed, &bad), "it takes checksums");
        assert!(may_be(Replace::Never, &bad), "it may not know conditions");
        assert!(!may_be(Replace::Never, &refused(412, FOUND)));
        assert!(may_be(Replace::Never, &bad), "nothing was asked");
        assert!(!may_be(Replace::Never, &refused(412, "PreconditionFailed")));
        assert!(!may_be(Replace::Never, &bad), "it knows conditions");
    }
}
