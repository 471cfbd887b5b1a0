//! The parts of an upload that is not complete, as the store lists them.

use crate::answers::Element;
use crate::checksum;
use crate::client::{Call, Client, Into, Trouble};
use crate::listing::{self, Tokens};
use crate::refusal;
use base::fault::Fault;
use base::limits::PARTS_MAX;
use mover::io::store::ListedPart;

/// Lists all parts; `None` where there is no such upload.
pub(crate) fn all(
    client: &Client,
    (bucket, key): (&str, &str),
    id: &str,
) -> Result<Option<Vec<ListedPart>>, Fault> {
    pages((bucket, key), |from| {
        let query = [("uploadId", id), ("part-number-marker", from)];
        let query = if from.is_empty() { &query[..1] } else { &query[..] };
        let call = Call { method: "GET", bucket, key, query, ..Call::default() };
        match client.call(&call, Into::Text) {
            Err(Trouble::Refused(refusal)) if refusal.code == "NoSuchUpload" => Ok(None),
            Err(trouble) => Err(refusal::fault(trouble, bucket, key)),
            Ok(answer) => answer.document("a list of parts").map(Some),
        }
    })
}

/// `ask` has the page after a part.
fn pages(
    place: (&str, &str),
    ask: impl Fn(&str) -> Result<Option<Element>, Fault>,
) -> Result<Option<Vec<ListedPart>>, Fault> {
    let (mut parts, mut tokens) = (Vec::new(), Tokens::<String>::default());
    loop {
        let from = tokens.last().map_or("", |from| from);
        let Some(page) = ask(from)? else { return Ok(None) };
        parts.extend(page.all("Part").filter_map(|part| {
            Some(ListedPart {
                number: part.get("PartNumber").parse().ok()?,
                len: part.get("Size").parse().ok()?,
                sum: checksum::read(part.get("ChecksumCRC64NVME")),
                tag: part.get("ETag").to_string(),
            })
        }));
        if !page.is_true("IsTruncated") {
            return Ok(Some(parts));
        }
        let next = page.get("NextPartNumberMarker").to_string();
        // Nor has an object more parts than there are numbers for.
        if parts.len() as u64 >= PARTS_MAX || next.is_empty() || !tokens.turn_to(next) {
            return Err(listing::endless("list of parts", place));
        }
    }
}

/// Removes an upload and its parts.
pub(crate) fn abort(client: &Client, (bucket, key): (&str, &str), id: &str) -> Result<(), Fault> {
    let query = &[("uploadId", id)];
    let is_clearing = true;
    let call = Call { method: "DELETE", bucket, key, query, is_clearing, ..Call::default() };
    let answer = client.call(&call, Into::Text);
    answer.map(|_| ()).map_err(|trouble| refusal::fault(trouble, bucket, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (&str, &str) = ("b", "k");

    /// A store that lists two parts a page, of five.
    #[test]
    fn all_pages_are_asked_for() {
        let part = |number: u64| {
            format!(
                "<Part><PartNumber>{number}</PartNumber><Size>7</Size><ETag>\"t{number}\"</ETag>\
                 <ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></Part>"
            )
        };
        let page = |from: &str| {
            let first = from.parse().unwrap_or(0) + 1;
            let last = (first + 1).min(5);
            let parts: String = (first..=last).map(part).collect();
            let text = format!(
                "<ListPartsResult><IsTruncated>{}</IsTruncated><NextPartNumberMarker>{last}\
                 </NextPartNumberMarker>{parts}</ListPartsResult>",
                last < 5
            );
            Ok(Element::parse(&text))
        };
        let parts = pages(PLACE, page).unwrap().unwrap();
        assert_eq!(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!((parts[4].len, &parts[4].tag[..]), (7, "\"t5\""));
        assert_eq!(parts[4].sum, Some(0xae8b_1486_0a79_9888));
        // One that names the same page again and again, or none, has said nothing of the rest.
        for marker in ["1", ""] {
            let text = format!(
                "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>{marker}\
                 </NextPartNumberMarker></ListPartsResult>"
            );
            let fault = pages(PLACE, |_| Ok(Element::parse(&text))).unwrap_err();
            assert!(
                fault.text.contains("list of parts of 's3://b/k' cannot be followed"),
                "{fault}"
            );
        }
        assert_eq!(pages(PLACE, |_| Ok(None)).unwrap(), None, "no such upload");
    }
}
