//! What a store refuses, and what the user is told of it.

use crate::answers::Element;
use crate::client::{Answer, Trouble};
use base::fault::{Class, Fault};

/// An answer that is no success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    /// `NoSuchKey` and the like; empty where the store does not say it.
    pub code: String,
    pub message: String,
    /// The region that the bucket is in, or the host that it is redirected to.
    pub elsewhere: Option<String>,
}

impl Refusal {
    pub(crate) fn of(answer: &Answer) -> Refusal {
        let error = Element::parse(&answer.text).unwrap_or_default();
        let head = &answer.head;
        let region = [head.get("x-amz-bucket-region"), error.get("Region")];
        let elsewhere = [region[0], region[1], error.get("Endpoint"), head.get("location")];
        Refusal {
            status: head.status,
            code: error.get("Code").to_string(),
            message: error.get("Message").trim_end_matches('.').to_string(),
            elsewhere: elsewhere.into_iter().find(|text| !text.is_empty()).map(String::from),
        }
    }

    /// True for what another try may not meet.
    pub(crate) fn is_passing(&self) -> bool {
        let is_passing = matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504);
        let codes = ["RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"];
        is_passing || codes.contains(&&self.code[..]) || self.status == 409 && self.is_conflict()
    }

    /// The store can do it, and wants fewer requests.
    pub(crate) fn asks_for_fewer(&self) -> bool {
        matches!(self.status, 429 | 503) || self.code == "SlowDown"
    }

    fn is_conflict(&self) -> bool {
        ["OperationAborted", "ConditionalRequestConflict"].contains(&&self.code[..])
    }

    /// Another form of the same request might not meet it: one without a newer header.
    pub(crate) fn may_be_of_form(&self) -> bool {
        let codes = ["", "InvalidArgument", "InvalidRequest", "NotImplemented", "BadRequest"];
        self.status == 501 || self.status == 400 && codes.contains(&&self.code[..])
    }

    /// An answer without a body does not say why; one to another request may.
    pub(crate) fn hides_why(&self) -> bool {
        let may_hide = matches!(self.status, 301 | 307 | 400 | 403 | 501) || self.is_passing();
        may_hide && self.code.is_empty() && self.elsewhere.is_none()
    }

    /// Somebody may write what he may not list.
    pub(crate) fn is_denied(&self) -> bool {
        self.status == 403 && !self.is_of_all()
    }

    /// True where every other request would be refused too.
    pub(crate) fn is_of_all(&self) -> bool {
        let codes = [
            "InvalidAccessKeyId",
            "XAdminUserNotFound", // versitygw
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "InvalidToken",
            "RequestTimeTooSkewed",
            "AuthorizationHeaderMalformed",
            "NoSuchBucket",
        ];
        codes.contains(&&self.code[..]) || (300..400).contains(&self.status) && self.status != 304
    }

    /// For people.
    pub(crate) fn told(&self) -> String {
        match (&self.code[..], &self.message[..]) {
            ("", _) => format!("status {}", self.status),
            (code, "") => format!("{code} (status {})", self.status),
            (code, message) => format!("{message} ({code}, status {})", self.status),
        }
    }
}

/// What the user is told of a call that failed.
pub(crate) fn fault(trouble: Trouble, bucket: &str, key: &str) -> Fault {
    match trouble {
        Trouble::Lost(fault) => fault,
        Trouble::Refused(refusal) => fault_of(&refusal, bucket, key),
    }
}

pub(crate) fn fault_of(refusal: &Refusal, bucket: &str, key: &str) -> Fault {
    let url = format!("s3://{bucket}/{}", key.escape_debug());
    let told = refusal.told();
    let (class, text) = match (&refusal.code[..], refusal.status) {
        ("InvalidAccessKeyId" | "InvalidToken" | "XAdminUserNotFound", _) => {
            (Class::Usage, format!("the store does not know these credentials: {told}"))
        }
        ("SignatureDoesNotMatch", _) => (
            Class::Usage,
            format!("the secret key is wrong, or the store's region is another: {told}"),
        ),
        ("ExpiredToken", _) => {
            (Class::Usage, format!("the credentials have expired: get new ones ({told})"))
        }
        ("RequestTimeTooSkewed", _) => (
            Class::Usage,
            format!("the clocks of this host and of the store differ too much: set them ({told})"),
        ),
        ("NoSuchBucket", _) => (Class::Usage, format!("there is no bucket '{bucket}'")),
        ("AuthorizationHeaderMalformed", _) | (_, 300..=399) => (
            Class::Usage,
            match &refusal.elsewhere {
                Some(place) if !place.contains(['.', '/']) => format!(
                    "the bucket '{bucket}' is in the region {place}: write --s3-region {place}"
                ),
                Some(place) => format!(
                    "the store redirects to {}, and credentials do not follow: name the right \
                     place with --s3-endpoint or --s3-region",
                    place.escape_debug()
                ),
                None => format!("the bucket '{bucket}' is in another region: {told}"),
            },
        ),
        ("InsufficientStorage" | "QuotaExceeded" | "XMinioStorageFull" | "StorageFull", _)
        | (_, 507) => (Class::NoSpace, format!("the store has no room for '{url}': {told}")),
        ("BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch", _) => {
            (Class::Corrupt, format!("'{url}' arrived other than it was sent: {told}"))
        }
        (_, 404) => (Class::Local, format!("'{url}': there is no such object ({told})")),
        (_, 403) => (Class::Local, format!("'{url}': the store forbids it: {told}")),
        _ => (Class::Local, format!("'{url}': the store refuses it: {told}")),
    };
    Fault::new(class, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Head;

    fn refusal(status: u16, code: &str, headers: &[(&str, &str)]) -> Refusal {
        let text = match code {
            "" => String::new(),
            code => format!("<Error><Code>{code}</Code><Message>Why.</Message></Error>"),
        };
        let pairs = headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let head = Head { status, headers: pairs.collect() };
        Refusal::of(&Answer { head, text, ..Answer::default() })
    }

    #[test]
    fn refusals_are_told_by_class() {
        let region = &[("x-amz-bucket-region", "eu-1")][..];
        let location = &[("location", "http://other.example/b")][..];
        let cases = [
            (403, "InvalidAccessKeyId", &[][..], Class::Usage, "does not know these credentials"),
            (404, "XAdminUserNotFound", &[], Class::Usage, "does not know these credentials"),
            (403, "SignatureDoesNotMatch", &[], Class::Usage, "secret key is wrong"),
            (400, "ExpiredToken", &[], Class::Usage, "have expired"),
            (403, "RequestTimeTooSkewed", &[], Class::Usage, "clocks of this host"),
            (404, "NoSuchBucket", &[], Class::Usage, "there is no bucket 'b'"),
            (301, "PermanentRedirect", region, Class::Usage, "write --s3-region eu-1"),
            (307, "", location, Class::Usage, "http://other.example/b, and credentials do not"),
            (400, "AuthorizationHeaderMalformed", &[], Class::Usage, "in another region"),
            (507, "", &[], Class::NoSpace, "no room for 's3://b/k'"),
            (400, "BadDigest", &[], Class::Corrupt, "other than it was sent: Why (BadDigest"),
            (404, "NoSuchKey", &[], Class::Local, "no such object"),
            (403, "AccessDenied", &[], Class::Local, "forbids it: Why (AccessDenied, status 403)"),
            (418, "", &[], Class::Local, "refuses it: status 418"),
        ];
        for (status, code, headers, class, says) in cases {
            let refusal = refusal(status, code, headers);
            let fault = fault_of(&refusal, "b", "k");
            assert_eq!(fault.class, class, "{refusal:?}");
            assert!(fault.text.contains(says), "{refusal:?}: {fault}");
            assert!(!refusal.is_passing(), "{refusal:?}");
            assert_eq!(refusal.is_of_all(), class == Class::Usage, "{refusal:?}");
        }
    }

    #[test]
    fn some_of_them_pass() {
        for (status, code) in [
            (500, ""),
            (503, "SlowDown"),
            (400, "RequestTimeout"),
            (429, ""),
            (409, "OperationAborted"),
        ] {
            let refusal = refusal(status, code, &[]);
            assert!(refusal.is_passing(), "{status} {code}");
            let fewer = matches!(status, 429 | 503);
            assert_eq!(refusal.asks_for_fewer(), fewer, "{status} {code}");
        }
        assert!(!refusal(409, "BucketNotEmpty", &[]).is_passing());
    }
}
