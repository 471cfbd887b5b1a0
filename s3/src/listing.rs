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
    page.next = (document.is_true("IsTruncated") && !next.is_empty()).then(|| next.to_string());
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
            let mut from: Option<String> = None;
            loop {
                let page = page(client, below, from.as_deref());
                let next = page.as_ref().ok().and_then(|page| page.next.clone());
                // A store that names the same page again would be listed for ever.
                let is_last = next.is_none() || next == from;
                from = next;
                if pages_in.send(page).is_err() || is_last {
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

    #[test]
    fn results_are_in_order() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(each(&items, |item| item * 2), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(each(&[] as &[u64], |item| *item), Vec::<u64>::new());
    }
}
