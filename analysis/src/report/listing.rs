//! What is in a folder, as `ls -l` shows it.

use std::time::Duration;

use base::listing::{Item, ItemKind, Sum};
use base::settings::Moment;
use base::units::Bytes;

use super::escape;
use super::live::count;
use super::utc::utc;

/// All lines: permissions, owner, size, time and name of each item, and a sum below them.
pub fn page(items: &[Item]) -> String {
    let rows: Vec<[String; 5]> = items.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [modes, owners, sizes, times] = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for [mode, owner, size, time, name] in &rows {
        text.push_str(&format!(
            "{mode:modes$}  {owner:owners$}  {size:>sizes$}  {time:times$}  {name}\n"
        ));
    }
    text + &total(items)
}

fn row(item: &Item) -> [String; 5] {
    let size = match (item.kind, item.below) {
        (ItemKind::Folder, Some(below)) => Bytes(below.bytes).to_string(),
        (ItemKind::File, _) => item.bytes.map_or(String::new(), |bytes| Bytes(bytes).to_string()),
        _ => String::new(),
    };
    let owner = item.owner.as_ref();
    let owner = owner.map(|(user, group)| escape::line(&format!("{user} {group}")));
    [
        mode(item),
        owner.unwrap_or_default(),
        size,
        item.mtime.map_or(String::new(), time),
        name(item),
    ]
}

/// `drwxr-x---`, as far as it is known.
fn mode(item: &Item) -> String {
    let kind = match item.kind {
        ItemKind::File => '-',
        ItemKind::Folder => 'd',
        ItemKind::Link => 'l',
        ItemKind::Special => 's',
    };
    let Some(mode) = item.mode else { return kind.to_string() };
    let mut text = String::from(kind);
    for (at, letter) in "rwxrwxrwx".chars().enumerate() {
        let is_set = mode & (0o400 >> at) != 0;
        // Set-user-ID, set-group-ID and the sticky bit take the place of the third of three.
        let special = at % 3 == 2 && mode & (0o4000 >> (at / 3)) != 0;
        let mark = if at == 8 { 't' } else { 's' };
        text.push(match (special, is_set) {
            (true, true) => mark,
            (true, false) => mark.to_ascii_uppercase(),
            (false, true) => letter,
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-20 12:15:03`, in UTC.
fn time(mtime: Moment) -> String {
    match u64::try_from(mtime.seconds) {
        Ok(seconds) => utc(Duration::from_secs(seconds))[..19].replace('T', " "),
        Err(_) => format!("@{}", mtime.seconds),
    }
}

fn name(item: &Item) -> String {
    // Another host, or a store, has chosen it: it must not look like lines of ours.
    let shown = |bytes: &[u8]| escape::line(&String::from_utf8_lossy(bytes));
    let name = shown(&item.name);
    match item.kind {
        ItemKind::Folder if !name.ends_with('/') => format!("{name}/"),
        ItemKind::Link => format!("{name} -> {}", shown(&item.link_target)),
        _ => name,
    }
}

/// What all of it is, with what is below folders where that was counted.
fn total(items: &[Item]) -> String {
    let folders = items.iter().filter(|item| item.kind == ItemKind::Folder).count() as u64;
    let mut sum = Sum::default();
    items.iter().for_each(|item| sum.add(item.sum()));
    let folders = match folders {
        0 => String::new(),
        _ => format!("{}, ", count(folders, "folder")),
    };
    let below = match items.iter().any(|item| item.below.is_some()) {
        true => " with all that is below",
        false => "",
    };
    format!("{folders}{}, {}{below}; times are UTC\n", count(sum.files, "file"), Bytes(sum.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_as_of_ls() {
        let file = Item {
            kind: ItemKind::File,
            bytes: Some(5 << 20),
            mtime: Some(Moment { seconds: 1_763_640_903, nanos: 5 }),
            mode: Some(0o4644),
            owner: Some(("me".into(), "us".into())),
            ..Item::folder(b"a.dat".to_vec())
        };
        let folder = Item {
            mode: Some(0o1777),
            below: Some(Sum { files: 3, bytes: 1 << 30 }),
            mtime: Some(Moment { seconds: -1, nanos: 0 }),
            ..Item::folder(b"tmp".to_vec())
        };
        let link = Item {
            kind: ItemKind::Link,
            link_target: b"a\x1b[2J".to_vec(),
            ..Item::folder(b"l\nx".to_vec())
        };
        let expect = "\
-rwSr--r--  me us  5 MiB  2025-11-20 12:15:03  a.dat
drwxrwxrwt         1 GiB  @-1                  tmp/
l                                              l\\nx -> a\\u{1b}[2J
1 folder, 5 files, 1.00 GiB with all that is below; times are UTC
";
        assert_eq!(page(&[file, folder, link]), expect);
    }
}
