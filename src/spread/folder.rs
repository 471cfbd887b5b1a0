//! The job folder: plain files on storage that all nodes share. Claims are names, and change by
//! renaming; what is read by others has one writer and is replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::destination::{Destination, Reply, Step};
use super::records::{Control, FORMAT, Manifest, PlanState, Shard, bytes_of, path_of};
use super::source::Source;
use analysis::shards::given::Turns;
use analysis::shards::{Held, names};
use base::fault::{Class, Fault};
use mover::io::reach::SPREAD_FOLDER;

/// An open job folder. Its paths are from the root.
#[derive(Clone, Debug)]
pub struct JobFolder {
    root: PathBuf,
    pub manifest: Manifest,
    /// Where the destination is, on the hosts that see it.
    pub destination: PathBuf,
}

/// A part of a job folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Shards,
    Waiting,
    Open,
    Claims,
    Done,
    Given,
    Ledgers,
    Receipts,
    Workers,
    Idle,
    Events,
    Logs,
}

impl Part {
    pub const ALL: [Part; 12] = [
        Part::Shards,
        Part::Waiting,
        Part::Open,
        Part::Claims,
        Part::Done,
        Part::Given,
        Part::Ledgers,
        Part::Receipts,
        Part::Workers,
        Part::Idle,
        Part::Events,
        Part::Logs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Part::Shards => "shards",
            Part::Waiting => "waiting",
            Part::Open => "open",
            Part::Claims => "claims",
            Part::Done => "done",
            Part::Given => "given",
            Part::Ledgers => "ledgers",
            Part::Receipts => "receipts",
            Part::Workers => "workers",
            Part::Idle => "idle",
            Part::Events => "events",
            Part::Logs => "logs",
        }
    }
}

impl JobFolder {
    /// Makes a job folder, and takes the destination for this job: nothing else may have it. If
    /// that fails, what was made is removed, so the same command can be tried again.
    pub fn create(
        root: &Path,
        manifest: &Manifest,
        destination: &mut Destination,
    ) -> Result<JobFolder, Fault> {
        make_private(root)?;
        let root = root.canonicalize().map_err(|why| Fault::io("open", root, &why))?;
        let made = JobFolder::fill(root.clone(), manifest, destination);
        if made.is_err() {
            // Nobody else can have put anything there: the name was free just now.
            let _ = fs::remove_dir_all(&root);
        }
        made
    }

    fn fill(
        root: PathBuf,
        manifest: &Manifest,
        destination: &mut Destination,
    ) -> Result<JobFolder, Fault> {
        for part in Part::ALL {
            make_private(&root.join(part.name()))?;
        }
        let folder = JobFolder::with(root, manifest.clone())?;
        folder.replace("token", manifest.token.as_bytes())?;
        folder.write_json(CONTROL, &Control::default())?;
        folder.write_json(PLAN, &PlanState::default())?;
        // It says what to give free, should this end here.
        folder.write_json(UNBEGUN, manifest)?;
        let begun = folder.begin(destination);
        if begun.is_err() {
            let _ = destination.ask(&Step::Leave);
        }
        begun.map(|()| folder)
    }

    fn begin(&self, destination: &mut Destination) -> Result<(), Fault> {
        destination.ask(&Step::Take { job: self.root.display().to_string() })?;
        if let Some(far) = destination.far() {
            far.check_all()?;
        }
        // Last: a folder without it was never a job.
        let path = self.root.join(MANIFEST);
        let begun = fs::rename(self.root.join(UNBEGUN), &path);
        begun.map_err(|why| Fault::write("write", &path, &why))?;
        sync_folder(&self.root)
    }

    /// Opens a job folder, and refuses one that is no job's, or in which others may write: whoever
    /// can write here says what is copied, and where to.
    pub fn open(root: &Path) -> Result<JobFolder, Fault> {
        let root = found(root)?;
        if !is_there(&root.join(MANIFEST))? {
            let shown = root.display();
            return Err(Fault::usage(match is_there(&root.join(UNBEGUN))? {
                true => format!(
                    "'{shown}' is of a spread that ended before it began, and has copied nothing: \
                     'datapump spread cancel --forget {shown}' gives its destination free, and the \
                     command with another --job begins anew"
                ),
                false => format!(
                    "'{shown}' is no job folder of 'datapump spread' (it has no {MANIFEST}): name \
                     the folder that 'datapump spread' printed"
                ),
            }));
        }
        JobFolder::read(root, MANIFEST)
    }

    /// The same, of a job that may have ended before it began.
    pub fn open_to_forget(root: &Path) -> Result<JobFolder, Fault> {
        let at = found(root)?;
        match !is_there(&at.join(MANIFEST))? && is_there(&at.join(UNBEGUN))? {
            true => JobFolder::read(at, UNBEGUN),
            false => JobFolder::open(root),
        }
    }

    fn read(root: PathBuf, name: &str) -> Result<JobFolder, Fault> {
        let manifest: Manifest = read_json(&root.join(name))?;
        if manifest.format != FORMAT || manifest.version != env!("CARGO_PKG_VERSION") {
            return Err(Fault::new(
                Class::Version,
                format!(
                    "the job in '{}' is of datapump {} (format {}), and this is {} (format \
                     {FORMAT}): use the same version on all nodes",
                    root.display(),
                    manifest.version,
                    manifest.format,
                    env!("CARGO_PKG_VERSION"),
                ),
            ));
        }
        JobFolder::with(root, manifest)
    }

    fn with(root: PathBuf, manifest: Manifest) -> Result<JobFolder, Fault> {
        let destination = path_of(&manifest.destination).ok_or_else(|| damaged(&root))?;
        Ok(JobFolder { root, manifest, destination })
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    pub fn part(&self, part: Part) -> PathBuf {
        self.root.join(part.name())
    }

    pub fn file(&self, part: Part, name: &str) -> PathBuf {
        self.part(part).join(name)
    }

    /// The destination as it may be typed.
    pub fn destination_shown(&self) -> String {
        let path = self.destination.display();
        match &self.manifest.far {
            Some(far) => format!("{}:{path}", far.name()),
            None => path.to_string(),
        }
    }

    /// The source of this number.
    pub fn source(&self, number: usize) -> Result<PathBuf, Fault> {
        let source = self.manifest.sources.get(number);
        source.and_then(|source| path_of(&source.folder)).ok_or_else(|| damaged(&self.root))
    }

    /// What precedes the names of a source at the destination.
    pub fn prefix(&self, number: usize) -> Result<Vec<u8>, Fault> {
        let source = self.manifest.sources.get(number);
        source.and_then(|source| bytes_of(&source.prefix)).ok_or_else(|| damaged(&self.root))
    }

    /// Whether the folder and the destination that this process sees are those of the job, and not
    /// others of the same name on this node, and whether it sees the sources.
    pub fn check_shared(
        &self,
        destination: &mut Destination,
        source: &mut Source,
    ) -> Result<(), Fault> {
        let here = hostname();
        let other = |what: &str, folder: &Path| {
            Fault::usage(format!(
                "the {what} that {here} sees as '{}' is not that of the job: it must be on \
                 storage that all nodes share, under the same path",
                folder.display()
            ))
        };
        let token = fs::read_to_string(self.root.join("token")).unwrap_or_default();
        if token != self.manifest.token {
            return Err(other("job folder", &self.root));
        }
        if destination.ask(&Step::IsTaken)? != Reply::Yes {
            return Err(other("destination", &destination.place().staging()));
        }
        let sources = (0..self.manifest.sources.len()).map(|number| self.source(number));
        let sources: Vec<PathBuf> = sources.collect::<Result<_, Fault>>()?;
        source.check(&sources)
    }

    pub fn control(&self) -> Result<Control, Fault> {
        read_json(&self.root.join(CONTROL))
    }

    pub fn set_control(&self, control: Control) -> Result<(), Fault> {
        self.write_json(CONTROL, &control)
    }

    pub fn plan(&self) -> Result<PlanState, Fault> {
        read_json(&self.root.join(PLAN))
    }

    pub fn set_plan(&self, plan: &PlanState) -> Result<(), Fault> {
        self.write_json(PLAN, plan)
    }

    /// What a launcher wanted to remember.
    pub fn notes(&self) -> Vec<String> {
        read_json(&self.root.join(NOTES)).unwrap_or_default()
    }

    pub fn set_notes(&self, notes: &[String]) -> Result<(), Fault> {
        self.write_json(NOTES, &notes)
    }

    fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Fault> {
        let text = serde_json::to_vec_pretty(value).map_err(|why| unwritten(name, &why))?;
        self.replace(name, &text)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        replace(&self.root, name, bytes)
    }

    /// The names in a part, without those that are being written.
    pub fn names(&self, part: Part) -> Result<Vec<String>, Fault> {
        self.some_names(part, usize::MAX)
    }

    /// So many of them, at most: no more of the folder is read than that takes.
    pub fn some_names(&self, part: Part, most: usize) -> Result<Vec<String>, Fault> {
        let path = self.part(part);
        let fault = |why: io::Error| Fault::io("list", &path, &why);
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            names.extend(name.into_string().ok().filter(|name| !name.starts_with('.')));
            if names.len() >= most {
                break;
            }
        }
        Ok(names)
    }

    /// What is done, and what each of them gave away.
    pub fn done(&self) -> Result<Vec<(Held, Turns)>, Fault> {
        let names = self.names(Part::Done)?;
        Ok(names.iter().filter_map(|name| names::parse_done(name)).collect())
    }

    /// A shard without its names.
    pub fn shard_head(&self, shard: u32) -> Result<Shard, Fault> {
        read_line(&self.file(Part::Shards, &names::of_shard(shard))).map(|(head, _)| head)
    }

    /// A shard, and its names.
    pub fn shard(&self, shard: u32) -> Result<(Shard, Vec<Vec<u8>>), Fault> {
        let path = self.file(Part::Shards, &names::of_shard(shard));
        let (header, names): (Shard, _) = read_named(&path)?;
        match header.shard == shard && names.len() as u64 == header.files {
            true => Ok((header, names)),
            false => Err(damaged(&path)),
        }
    }
}

/// A line of JSON, and names, each ended by a NUL byte.
pub fn named<T: Serialize>(header: &T, names: &[Vec<u8>]) -> Vec<u8> {
    let mut text = serde_json::to_vec(header).unwrap_or_default();
    text.push(b'\n');
    for name in names {
        text.extend(name);
        text.push(0);
    }
    text
}

fn read_line<T: DeserializeOwned>(path: &Path) -> Result<(T, BufReader<File>), Fault> {
    let fault = |why: io::Error| Fault::io("read", path, &why);
    let mut file = BufReader::new(File::open(path).map_err(fault)?);
    let mut line = String::new();
    file.read_line(&mut line).map_err(fault)?;
    Ok((serde_json::from_str(&line).map_err(|_| damaged(path))?, file))
}

pub fn read_named<T: DeserializeOwned>(path: &Path) -> Result<(T, Vec<Vec<u8>>), Fault> {
    let fault = |why: io::Error| Fault::io("read", path, &why);
    let (header, mut file) = read_line(path)?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).map_err(fault)?;
    let mut names: Vec<Vec<u8>> = rest.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    names.pop();
    Ok((header, names))
}

/// What a job has at a destination while it runs.
pub fn holder_of(destination: &Path) -> PathBuf {
    destination.join(SPREAD_FOLDER)
}

/// Writes a file under a name of its own, and gives it its name once it is on stable storage.
pub fn replace(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Fault> {
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let path = folder.join(name);
    let fault = |why: io::Error| Fault::write("write", &path, &why);
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    let mut file = options.open(&temporary).map_err(fault)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(fault)?;
    fs::rename(&temporary, &path).map_err(fault)
}

/// Names in it are on stable storage after that.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Fault> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|why| Fault::write("sync", folder, &why))
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Fault> {
    let text = fs::read(path).map_err(|why| Fault::io("read", path, &why))?;
    serde_json::from_slice(&text).map_err(|_| damaged(path))
}

/// A file of a job folder that is not what was written there.
pub fn damaged(path: &Path) -> Fault {
    Fault::new(
        Class::Local,
        format!(
            "'{}' is damaged: 'datapump spread resume' makes the job folder anew from its manifest \
             and receipts, and what is lost is copied again",
            path.display()
        ),
    )
}

fn unwritten(name: &str, why: &serde_json::Error) -> Fault {
    Fault::new(Class::Local, format!("cannot write {name}: {why}"))
}

pub(super) fn make_private(path: &Path) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Err(Fault::usage(format!(
            "'{}' exists: name a new folder with --job, or continue a job with 'datapump spread \
             resume'",
            path.display()
        ))),
        Err(why) => Err(Fault::write("make", path, &why)),
    }
}

/// The path from the root of a folder that is ours alone.
fn found(root: &Path) -> Result<PathBuf, Fault> {
    let root = root.canonicalize().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => {
            Fault::usage(format!("there is no job folder '{}'", root.display()))
        }
        _ => Fault::io("open", root, &why),
    })?;
    refuse_others(&root).map(|()| root)
}

fn is_there(path: &Path) -> Result<bool, Fault> {
    path.try_exists().map_err(|why| Fault::io("look at", path, &why))
}

fn refuse_others(root: &Path) -> Result<(), Fault> {
    let found = fs::metadata(root).map_err(|why| Fault::io("open", root, &why))?;
    let me = rustix::process::geteuid().as_raw();
    let why = match (found.mode() & 0o022, found.uid()) {
        (0, owner) if owner == me => return Ok(()),
        (0, owner) => format!("belongs to user {owner}, and this is user {me}"),
        (mode, _) => format!("may be written by others (mode {mode:03o} of 022)"),
    };
    Err(Fault::usage(format!(
        "the job folder '{}' {why}: whoever can write there says what is copied, so it must be \
         yours alone (chmod go-w, chown)",
        root.display()
    )))
}

/// This node's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// So many random bytes, in hexadecimal.
pub fn random_hex(bytes: usize) -> Result<String, Fault> {
    let path = Path::new("/dev/urandom");
    let mut random = vec![0; bytes];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|why| Fault::io("read", path, &why))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

const MANIFEST: &str = "manifest.json";
/// What becomes the manifest once the job has its destination.
const UNBEGUN: &str = "unbegun.json";
const CONTROL: &str = "control.json";
const PLAN: &str = "plan.json";
const NOTES: &str = "notes.json";
