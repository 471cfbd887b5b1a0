//! The source's side of a job: what is copied, what it is now, and the walk that finds all of it.
//! The same code answers in this process, where the nodes see the source, and otherwise at a far
//! host that does, over one login.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::destination::{Found, Name};
use super::far::serving::{Asked, Response};
use super::far::{FarEnd, Hosts, failed};
use super::folder::{JobFolder, hostname};
use super::records::{
    Copying, Failed, FarHosts, SourceRoot, below, bytes_of, path_of, text_of, text_of_path,
};
use base::fault::{Class, Fault};
use base::job::Location;
use base::settings::{Links, Settings};
use mover::io::reach::Reach;
use mover::pump::source::pattern;
use mover::pump::source::walk::{Sources, WalkEvent, means_contents};
use mover::pump::watch::Watch;
use mover::remote::home;
use mover::wire::manifest::{Entry, EntryKind, path_is_safe};

/// The sources of a job, as one process reaches them.
#[derive(Debug)]
pub enum Source {
    Here,
    Far(Box<Hosts>),
}

/// What is asked of a source's side. Nothing there is changed by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What these words stand for, as they were typed.
    Find(Vec<Name>),
    /// What has these paths now, or what links of these paths lead to.
    Look { paths: Vec<Name>, follows: bool },
    /// All that is to be copied of a source.
    Walk { root: SourceRoot, copying: WalkedBy },
}

/// What of a copy a walk must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkedBy {
    links: String,
    filters: Vec<String>,
    min_size: Option<u64>,
    max_size: Option<u64>,
}

/// What a source's side answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    Roots(Vec<SourceRoot>),
    Found(Vec<Option<Found>>),
    /// A walk begins.
    Walks,
    Seen(Sighting),
    /// It has told everything.
    Walked,
}

/// What a walk comes across.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sighting {
    Entries(Vec<Seen>),
    /// What cannot be copied.
    Failed(Failed),
    /// What is not copied because of its kind.
    Skipped(String),
}

/// A name below a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub kind: SeenKind,
    pub size: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
    pub mode: u32,
    pub name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenKind {
    File,
    Link,
    /// All that is in it has been seen.
    Folder,
}

type TakeSighting<'a> = dyn FnMut(Sighting) -> Result<(), Fault> + 'a;

impl Source {
    pub fn new(far: Option<&FarHosts>, worker: &str, ssh: Option<&[String]>) -> Source {
        match far {
            Some(far) => Source::Far(Box::new(Hosts::new(FarEnd::Source, far, worker, ssh))),
            None => Source::Here,
        }
    }

    /// That of a job, for a worker of this name.
    pub fn of(folder: &JobFolder, worker: &str, ssh: Option<&[String]>) -> Source {
        Source::new(folder.manifest.far_source.as_ref(), worker, ssh)
    }

    /// The far hosts that see it, where this process does not.
    pub fn hosts(&mut self) -> Option<&mut Hosts> {
        match self {
            Source::Here => None,
            Source::Far(hosts) => Some(hosts),
        }
    }

    /// The far host that is used now.
    pub fn host(&self) -> Option<&str> {
        match self {
            Source::Here => None,
            Source::Far(hosts) => Some(hosts.host()),
        }
    }

    /// The folders below which names are copied. Every far host that can be reached must see the
    /// same.
    pub fn find(&mut self, typed: &[PathBuf]) -> Result<Vec<SourceRoot>, Fault> {
        let Source::Far(hosts) = self else {
            return typed.iter().map(|path| root(path)).collect();
        };
        let asked = Asked::Source(Question::Find(typed.iter().map(|p| Name::from(&**p)).collect()));
        let mut found: Option<(String, Vec<SourceRoot>)> = None;
        hosts.ask_each(&mut |session, host| {
            let roots = match session.ask(&asked).map_err(|why| session.explain(host, &why))? {
                Response::Source(Told::Roots(roots)) if roots.iter().all(root_is_safe) => roots,
                Response::Failed { code, why } => return Err(failed(host, code, &why)),
                other => return Err(strange(host, &other)),
            };
            match &found {
                Some((first, others)) if *others != roots => Err(Fault::usage(format!(
                    "{first} and {host} see other folders as the source: all far hosts must see \
                     the same storage under this path, or be left out"
                ))),
                _ => {
                    found = Some((host.to_string(), roots));
                    Ok(())
                }
            }
        })?;
        Ok(found.map(|(_, roots)| roots).unwrap_or_default())
    }

    /// Whether these folders can be found.
    pub fn check(&mut self, folders: &[PathBuf]) -> Result<(), Fault> {
        let Source::Far(hosts) = self else {
            let on_it =
                |fault: Fault| Fault { text: format!("{fault}, on {}", hostname()), ..fault };
            return folders.iter().try_for_each(|path| root(path).map(drop)).map_err(on_it);
        };
        let asked = Question::Find(folders.iter().map(|path| Name::from(&**path)).collect());
        match hosts.ask(&Asked::Source(asked), &|_, _| Ok(()))? {
            Response::Source(Told::Roots(_)) => Ok(()),
            other => Err(strange(hosts.host(), &other)),
        }
    }

    /// What has these paths now; nothing is said of one that cannot be looked at.
    pub fn look(
        &mut self,
        paths: &[PathBuf],
        copying: &Copying,
    ) -> Result<Vec<Option<Found>>, Fault> {
        let follows = copying.links() == Some(Links::Follow);
        let Source::Far(hosts) = self else { return Ok(look(paths, follows)) };
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let paths: Vec<Name> = paths.iter().map(|path| Name::from(&**path)).collect();
        let asked = Question::Look { paths: paths.clone(), follows };
        match hosts.ask(&Asked::Source(asked), &|_, _| Ok(()))? {
            Response::Source(Told::Found(found)) if found.len() == paths.len() => Ok(found),
            other => Err(strange(hosts.host(), &other)),
        }
    }

    /// Walks a source. The host that cannot be reached is left for the next; one that is lost later
    /// is an error, and the next walk begins at another.
    pub fn walk(
        &mut self,
        root: &SourceRoot,
        copying: &Copying,
        watch: &Watch,
        take: &mut TakeSighting<'_>,
    ) -> Result<(), Fault> {
        let copying = WalkedBy::of(copying);
        let mut take = |sighting| match watch.stopping() {
            true => Err(Fault::interrupted()),
            false => take(sighting),
        };
        let Source::Far(hosts) = self else { return walk(root, &copying, &mut take) };
        let asked = Question::Walk { root: root.clone(), copying };
        let mut said = hosts.ask(&Asked::Source(asked), &|_, _| Ok(()))?;
        loop {
            let taken = match said {
                Response::Source(Told::Walks) => Ok(()),
                Response::Source(Told::Seen(sighting)) => match unsafe_name(&sighting) {
                    None => take(sighting),
                    Some(name) => Err(Fault::peer(format!(
                        "the far host {} tells of '{name}' in the source, which no file there can \
                         be called: nothing of it is copied",
                        hosts.host()
                    ))),
                },
                Response::Source(Told::Walked) => return Ok(()),
                other => Err(strange(hosts.host(), &other)),
            };
            said = match taken.and_then(|()| hosts.hear(watch)) {
                Ok(said) => said,
                Err(fault) => {
                    hosts.log_out();
                    return Err(fault);
                }
            };
        }
    }
}

fn strange(host: &str, answer: &Response) -> Fault {
    Fault::peer(format!("the source's side at {host} answers what makes no sense: {answer:?}"))
}

/// What another host tells becomes paths at the destination: names are below it, and a size is that
/// of a file. The first that is not so.
fn unsafe_name(sighting: &Sighting) -> Option<String> {
    let Sighting::Entries(entries) = sighting else { return None };
    let is_safe = |seen: &&Seen| {
        let name = &seen.name.0;
        // The folder that is walked has an empty name.
        let is_top = name.is_empty() && seen.kind == SeenKind::Folder;
        (is_top || path_is_safe(name)) && i64::try_from(seen.size).is_ok()
    };
    let found = entries.iter().find(|seen| !is_safe(seen))?;
    Some(found.name.0.escape_ascii().to_string())
}

fn root_is_safe(root: &SourceRoot) -> bool {
    let is_name = |text: &str| {
        bytes_of(text).is_some_and(|name| path_is_safe(&name) && !name.contains(&b'/'))
    };
    let is_below = root.prefix.is_empty() || root.prefix.strip_suffix('/').is_some_and(is_name);
    let is_absolute = path_of(&root.folder).is_some_and(|folder| folder.is_absolute());
    is_below && is_absolute && root.only.as_deref().is_none_or(is_name)
}

/// Answers a question at a host that sees the source.
pub(super) fn answer(
    question: &Question,
    tell: &mut dyn FnMut(Told) -> Result<(), Fault>,
) -> Result<(), Fault> {
    match question {
        Question::Find(typed) => tell(Told::Roots(find(typed)?)),
        Question::Look { paths, follows } => {
            let paths: Vec<PathBuf> = paths.iter().map(path).collect();
            tell(Told::Found(look(&paths, *follows)))
        }
        Question::Walk { root, copying } => {
            tell(Told::Walks)?;
            walk(root, copying, &mut |sighting| tell(Told::Seen(sighting)))?;
            tell(Told::Walked)
        }
    }
}

fn path(name: &Name) -> PathBuf {
    below(Path::new(""), &name.0)
}

/// What was typed elsewhere: no shell here has seen it.
fn find(typed: &[Name]) -> Result<Vec<SourceRoot>, Fault> {
    let typed: Vec<Location> = typed.iter().map(|name| Location::Path(path(name))).collect();
    let mut roots = Vec::with_capacity(typed.len());
    for location in home::expanded(&typed)? {
        let Location::Path(path) = location else { continue };
        for path in pattern::expand(&path, &Reach::Host)? {
            roots.push(root(&path)?);
        }
    }
    Ok(roots)
}

fn root(path: &Path) -> Result<SourceRoot, Fault> {
    let real = canonical(path)?;
    let found = fs::metadata(&real).map_err(|why| Fault::io("open", path, &why))?;
    let typed = path.file_name().or(real.file_name()).unwrap_or_default();
    if found.is_dir() {
        let prefix = match means_contents(path) {
            true => String::new(),
            false => format!("{}/", text_of(typed.as_encoded_bytes())),
        };
        return Ok(SourceRoot { folder: text_of_path(&real), prefix, only: None });
    }
    if !found.is_file() {
        return Err(Fault::usage(format!("'{}' is no file and no folder", path.display())));
    }
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(Fault::usage(format!("'{}' has no folder", path.display())));
    };
    let only = Some(text_of(name.as_encoded_bytes()));
    Ok(SourceRoot { folder: text_of_path(folder), prefix: String::new(), only })
}

fn canonical(path: &Path) -> Result<PathBuf, Fault> {
    path.canonicalize().map_err(|why| Fault::io("find", path, &why))
}

fn look(paths: &[PathBuf], follows: bool) -> Vec<Option<Found>> {
    let look = |path: &PathBuf| {
        let found = if follows { rustix::fs::stat(path) } else { rustix::fs::lstat(path) };
        let target = rustix::fs::readlink(path, Vec::new()).ok().filter(|_| !follows);
        Some(Found::of(&found.ok()?, target.map(|target| Name(target.into_bytes()))))
    };
    paths.iter().map(look).collect()
}

fn walk(root: &SourceRoot, copying: &WalkedBy, take: &mut TakeSighting<'_>) -> Result<(), Fault> {
    let settings = copying.settings();
    let sources = Sources::look(&[Location::Path(walked(root))], true, &Reach::Host)?;
    let mut stopped_by = None;
    sources.choose(&settings)?.walk(&settings, &mut |event| {
        for sighting in Sighting::of(event) {
            if stopped_by.is_none() {
                stopped_by = take(sighting).err();
            }
        }
        stopped_by.is_none()
    });
    stopped_by.map_or(Ok(()), Err)
}

/// The path of a source, so that its names are below it.
fn walked(root: &SourceRoot) -> PathBuf {
    let folder = path_of(&root.folder).unwrap_or_default();
    match root.only.as_deref().and_then(path_of) {
        Some(only) => folder.join(only),
        None => folder.join(""),
    }
}

impl WalkedBy {
    fn of(copying: &Copying) -> WalkedBy {
        WalkedBy {
            links: copying.links.clone(),
            filters: copying.filters.clone(),
            min_size: copying.min_size,
            max_size: copying.max_size,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            recursive: true,
            links: Links::parse(&self.links).unwrap_or(Links::Copy),
            filters: self.filters.clone(),
            min_size: self.min_size,
            max_size: self.max_size,
            // A name that one node copies cannot be another name of what another node copies.
            names_apart: true,
            ..Settings::default()
        }
    }
}

impl Sighting {
    fn of(event: WalkEvent) -> Vec<Sighting> {
        match event {
            WalkEvent::Chunk(found) => {
                let (mut seen, mut failed) = (Vec::with_capacity(found.len()), Vec::new());
                for found in found {
                    match SeenKind::of(found.entry.kind) {
                        Ok(Some(kind)) => seen.push(Seen::of(kind, found.entry)),
                        Ok(None) => {}
                        Err(why) => failed.push(Sighting::Failed(Failed {
                            name: text_of(&found.entry.path),
                            code: Class::SomeFailed.exit_code(),
                            why: why.to_string(),
                        })),
                    }
                }
                failed.push(Sighting::Entries(seen));
                failed
            }
            WalkEvent::Unoffered { path, fault } => {
                let (name, code) = (text_of(&path), fault.class.exit_code());
                vec![Sighting::Failed(Failed { name, code, why: fault.text })]
            }
            WalkEvent::Skipped(text) => vec![Sighting::Skipped(text)],
            WalkEvent::Present(_) | WalkEvent::Excluded(_) => Vec::new(),
        }
    }
}

impl SeenKind {
    /// Nothing for a folder that is entered: it is seen when all in it has been. The error is for
    /// what no walk of a folder offers.
    fn of(kind: EntryKind) -> Result<Option<SeenKind>, &'static str> {
        match kind {
            EntryKind::File => Ok(Some(SeenKind::File)),
            EntryKind::Link => Ok(Some(SeenKind::Link)),
            EntryKind::Leave => Ok(Some(SeenKind::Folder)),
            EntryKind::Directory => Ok(None),
            EntryKind::HardLink => Err("it is offered as another name of a file"),
            EntryKind::Stretch | EntryKind::Pipe => Err("it is no file of a folder"),
        }
    }
}

impl Seen {
    fn of(kind: SeenKind, entry: Entry) -> Seen {
        let Entry { size, mtime_seconds: mtime_s, mtime_nanos: mtime_ns, mode, path, .. } = entry;
        Seen { kind, size, mtime_s, mtime_ns, mode, name: Name(path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_means_the_contents() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("a b");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("f"), "x").unwrap();
        let of = |path: PathBuf| {
            let root = root(&path).unwrap();
            (root.prefix, root.only)
        };
        assert_eq!(of(folder.clone()), ("a b/".into(), None));
        assert_eq!(of(folder.join("")), (String::new(), None));
        assert_eq!(of(folder.join("f")), (String::new(), Some("f".into())));
        assert!(root(&folder.join("nothing")).is_err());
    }

    #[test]
    fn what_leads_out_of_the_destination_is_not_taken() {
        let seen = |kind, size, name: &[u8]| {
            let name = Name(name.to_vec());
            Sighting::Entries(vec![Seen { kind, size, mtime_s: 0, mtime_ns: 0, mode: 0, name }])
        };
        let long = i64::MAX as u64;
        for (kind, size, name, expect) in [
            (SeenKind::File, long, &b"a/b \xff\n"[..], true),
            (SeenKind::Folder, 0, b"", true),
            (SeenKind::Folder, 0, b"a", true),
            (SeenKind::File, 1, b"", false),
            (SeenKind::File, 1, b"../a", false),
            (SeenKind::Link, 1, b"a/../../b", false),
            (SeenKind::Folder, 1, b"/a", false),
            (SeenKind::File, 1, b"a\0", false),
            (SeenKind::File, long + 1, b"a", false),
        ] {
            let found = unsafe_name(&seen(kind, size, name));
            assert_eq!(found.is_none(), expect, "{found:?}: {}", name.escape_ascii());
        }
        for (folder, prefix, only, expect) in [
            ("/data", "set/", None, true),
            ("/data", "", Some("file"), true),
            ("data", "", None, false),
            ("/data", "../", None, false),
            ("/data", "a/b/", None, false),
            ("/data", "set", None, false),
            ("/data", "/", None, false),
            ("/data", "", Some("../file"), false),
            ("/data", "", Some(".."), false),
        ] {
            let only = only.map(String::from);
            let root = SourceRoot { folder: folder.into(), prefix: prefix.into(), only };
            assert_eq!(root_is_safe(&root), expect, "{root:?}");
        }
    }
}
