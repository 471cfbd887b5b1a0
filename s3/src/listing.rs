//! Listings of a bucket, a page at a time: the next page is asked for while this one is used.

use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use crate::answers::{Element, decoded};
use crate::client::{Call, Client, Into, Trouble, lock};
use crate::dates;
use crate::refusal;
use base::fault::{Class, Fault};
use mover::io::volume::Mtime;

/// Keys of one page, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub keys: Vec<Key>,
    /// Folders, where a delimiter was asked for.
    pub folders: Vec<String>,
    /// How the next page is asked for.
    pub next: Option<String>,
    /// The store says that there is more, and not how it is asked for.
    pub is_cut: bool,
}

impl Page {
    /// Whether it is known to be the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.next.is_none() && !self.is_cut
    }
}

/// The tokens of the pages of a listing: none comes again, or the store would be asked for ever.
#[derive(Debug)]
pub(crate) struct Tokens<T> {
    last: Option<T>,
    /// An earlier one: every cycle meets it at some time.
    kept: Option<T>,
    asked: u64,
}

impl<T> Default for Tokens<T> {
    fn default() -> Tokens<T> {
        Tokens { last: None, kept: None, asked: 0 }
    }
}

impl<T: Clone + PartialEq> Tokens<T> {
    /// What the next page is asked for with.
    pub(crate) fn last(&self) -> Option<&T> {
        self.last.as_ref()
    }

    /// False where this one has come before.
    pub(crate) fn turn_to(&mut self, next: T) -> bool {
        if self.last.as_ref() == Some(&next) || self.kept.as_ref() == Some(&next) {
            return false;
        }
        self.asked += 1;
        if self.asked.is_power_of_two() {
            self.kept = Some(next.clone());
        }
        self.last = Some(next);
        true
    }
}

/// What is listed has more than the store lets anybody ask for.
pub(crate) fn endless(what: &str, (bucket, key): (&str, &str)) -> Fault {
    let text = format!(
        "the store's {what} of 's3://{bucket}/{}' cannot be followed to its end: it says that \
         there is more, and not where, or names a page again; what is there is not known",
        key.escape_debug()
    );
    Fault::new(Class::Peer, text)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub name: String,
    pub size: u64,
    pub mtime: Mtime,
}

/// What is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    /// Only what is directly below it.
    pub delimited: bool,
    pub keys_max: u32,
}

pub(crate) fn page(client: &Client, below: Below<'_>, from: Option<&str>) -> Result<Page, Fault> {
    asked(client, below, from)
        .map_err(|trouble| refusal::fault(trouble, below.bucket, below.prefix))
}

/// The same, with what the store refuses.
pub(crate) fn asked(
    client: &Client,
    below: Below<'_>,
    from: Option<&str>,
) -> Result<Page, Trouble> {
    let keys_max = below.keys_max.to_string();
    let mut query = vec![
        ("list-type", "2"),
        ("encoding-type", "url"),
        ("max-keys", &keys_max[..]),
        ("prefix", below.prefix),
    ];
    query.extend(from.map(|token| ("continuation-token", token)));
    if below.delimited {
        query.push(("delimiter", "/"));
    }
    let call = Call { method: "GET", bucket: below.bucket, query: &query, ..Call::default() };
    let answer = client.call(&call, Into::Text)?;
    read(&answer.document("a listing").map_err(Trouble::Lost)?).ok_or_else(|| {
        let text = format!("the store's listing of 's3://{}' cannot be read", below.bucket);
        Trouble::Lost(Fault::new(Class::Peer, text))
    })
}

fn read(document: &Element) -> Option<Page> {
    let is_url = document.get("EncodingType") == "url";
    let name = |text: &str| if is_url { decoded(text) } else { Some(text.to_string()) };
    let mut page = Page::default();
    for contents in document.all("Contents") {
        let (seconds, nanos) = dates::iso(contents.get("LastModified")).unwrap_or_default();
        page.keys.push(Key {
            name: name(contents.get("Key"))?,
            size: contents.get("Size").parse().ok()?,
            mtime: Mtime { seconds, nanos },
        });
    }
    for folder in document.all("CommonPrefixes") {
        page.folders.push(name(folder.get("Prefix"))?);
    }
    let next = document.get("NextContinuationToken");
    let is_truncated = document.is_true("IsTruncated");
    page.next = (is_truncated && !next.is_empty()).then(|| next.to_string());
    page.is_cut = is_truncated && next.is_empty();
    Some(page)
}

/// All pages, in order, until `take` returns false.
pub(crate) fn pages(
    client: &Client,
    below: Below<'_>,
    take: &mut dyn FnMut(Page) -> bool,
) -> Result<(), Fault> {
    let (pages_in, pages) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut tokens = Tokens::default();
            loop {
                let page = page(client, below, tokens.last().map(|token: &String| &token[..]));
                let (next, is_last) = match &page {
                    Ok(page) => (page.next.clone(), page.is_last()),
                    Err(_) => (None, true),
                };
                if pages_in.send(page).is_err() || is_last {
                    return;
                }
                if !next.is_some_and(|next| tokens.turn_to(next)) {
                    let endless = endless("listing", (below.bucket, below.prefix));
                    let _ = pages_in.send(Err(endless));
                    return;
                }
            }
        });
        // Dropping the receiver ends the thread.
        for page in pages {
            if !take(page?) {
                break;
            }
        }
        Ok(())
    })
}

/// Does something for each item, several at a time; the results are in the order of the items.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(0..items.len());
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some(index) = { lock(&next).next() } {
            let result = work(&items[index]);
            lock(&done).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        let helpers = AT_A_TIME.min(items.len()).saturating_sub(1);
        for _ in 0..helpers {
            // Where the system gives no thread, those that there are do it.
            let _ = std::thread::Builder::new().name("datapump-s3".into()).spawn_scoped(scope, run);
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The items that failed, by their numbers.
pub(crate) fn failures(results: Vec<Result<(), Fault>>) -> Vec<(u16, Fault)> {
    (0..).zip(results).filter_map(|(index, result)| Some((index, result.err()?))).collect()
}

/// Small objects under way for one request of the pump.
const AT_A_TIME: usize = 16;
pub(crate) const PAGE_KEYS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let text = "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true\
                    </IsTruncated><NextContinuationToken>t</NextContinuationToken>\
                    <Contents><Key>a%0Ab+c</Key><Size>7</Size>\
                    <LastModified>1970-01-01T00:00:01.5Z</LastModified></Contents>\
                    <CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = read(&Element::parse(text).unwrap()).unwrap();
        let mtime = Mtime { seconds: 1, nanos: 500_000_000 };
        assert_eq!(page.keys, [Key { name: "a\nb c".into(), size: 7, mtime }]);
        assert_eq!((page.folders, page.next), (vec!["d/".to_string()], Some("t".to_string())));
        let bad = text.replace(">7<", ">x<");
        assert_eq!(read(&Element::parse(&bad).unwrap()), None);
    }

    /// A page that says that there is more is never the last one.
    #[test]
    fn pages_without_a_next_one_are_no_end() {
        let of = |more: &str| {
            let text = format!("<ListBucketResult>{more}</ListBucketResult>");
            let page = read(&Element::parse(&text).unwrap()).unwrap();
            (page.next.clone(), page.is_last())
        };
        let token = "<NextContinuationToken>t</NextContinuationToken>";
        assert_eq!(of(""), (None, true));
        assert_eq!(of("<IsTruncated>false</IsTruncated>"), (None, true));
        assert_eq!(of("<IsTruncated>true</IsTruncated><NextMarker>k</NextMarker>"), (None, false));
        assert_eq!(
            of(&format!("<IsTruncated>true</IsTruncated>{token}")),
            (Some("t".into()), false)
        );
    }

    #[test]
    fn tokens_that_come_again_are_found() {
        for (before, cycle) in [(0, 1), (1, 1), (5, 1), (0, 2), (3, 2), (10, 7), (100, 33)] {
            let mut tokens = Tokens::default();
            let token = |at: u64| if at < before { at } else { before + (at - before) % cycle };
            let found = (0..1000).find(|at| !tokens.turn_to(token(*at)));
            let found = found.unwrap_or_else(|| panic!("{cycle} after {before}"));
            assert!(found >= before + cycle, "{cycle} after {before}: {found} is new");
        }
        let mut tokens = Tokens::default();
        assert!((0..10_000).all(|at| tokens.turn_to(at)));
    }

    #[test]
    fn results_are_in_order() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(each(&items, |item| item * 2), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(each(&[] as &[u64], |item| *item), Vec::<u64>::new());
    }
}
