//! One copy as a job of Slurm. A folder has all that the job needs and all that is known of it:
//! the words of the copy, what was asked of Slurm, the jobs that were submitted for it, and how it
//! ended. Slurm's queue says only whether somebody still works on it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::fault::{Class, Fault};
use serde::{Deserialize, Serialize};

use super::launcher::slurm::{Request, Slurm};
use super::launcher::{End, Launcher, WorkerState};

/// The folder of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    folder: PathBuf,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Waits(String),
    Runs(String),
    /// The copy's exit code.
    Ended(u8),
    /// Nobody works on it, and it is not done.
    Abandoned(String),
    Unknown(String),
}

/// What was asked for, in the folder's `request.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    program: PathBuf,
    request: Request,
}

/// Jobs for one copy. Another is submitted where Slurm has lost one.
const JOBS_MAX: usize = 5;

impl Submitted {
    /// A new folder below `parent`, readable by its owner only.
    pub fn create(
        parent: &Path,
        name: &str,
        words: &[OsString],
        program: &Path,
        request: &Request,
    ) -> Result<Submitted, Fault> {
        let folder = parent.join(name);
        let told = |why: io::Error| at(&folder, &why);
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true).create(parent).map_err(told)?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(told)?;
        let made = Submitted { folder: folder.clone() };
        let here = std::env::current_dir().map_err(told)?;
        made.write("words", &joined(words))?;
        made.write("directory", here.as_os_str().as_bytes())?;
        let kept = Kept { program: program.to_path_buf(), request: request.clone() };
        let kept = serde_json::to_vec(&kept).map_err(|why| told(why.into()))?;
        made.write("request.json", &kept)?;
        Ok(made)
    }

    pub fn open(folder: &Path) -> Result<Submitted, Fault> {
        let opened = Submitted { folder: folder.to_path_buf() };
        opened.words().map(|_| opened)
    }

    /// All below `parent`, by name. What is none is left out.
    pub fn all(parent: &Path) -> Vec<Submitted> {
        let entries = fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        folders.iter().filter_map(|folder| Submitted::open(folder).ok()).collect()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The words of the copy, `copy` first.
    pub fn words(&self) -> Result<Vec<OsString>, Fault> {
        let bytes = self.read("words")?;
        let words: Vec<OsString> =
            bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        match words.first() {
            Some(word) if word == "copy" => Ok(words),
            _ => Err(Fault::usage(format!(
                "'{}' is no folder of a submitted copy",
                self.folder.display()
            ))),
        }
    }

    /// The directory in which the copy was typed: its paths may be relative.
    pub fn directory(&self) -> Result<PathBuf, Fault> {
        Ok(OsString::from_vec(self.read("directory")?).into())
    }

    /// The exit code of the copy, once it has ended.
    pub fn ended(&self) -> Option<u8> {
        let text = fs::read_to_string(self.folder.join("ended")).ok()?;
        text.trim().parse().ok()
    }

    /// Written by who runs the copy, when no other try will follow.
    pub fn set_ended(&self, code: u8) -> Result<(), Fault> {
        // By another name first, so that nobody reads half of it.
        self.write("ended.new", format!("{code}\n").as_bytes())?;
        let (from, to) = (self.folder.join("ended.new"), self.folder.join("ended"));
        fs::rename(&from, &to).map_err(|why| at(&to, &why))
    }

    /// The script that `submit` gives to `sbatch`.
    pub fn script(&self) -> Result<String, Fault> {
        let kept = self.kept()?;
        Slurm::new(kept.request).script_of_copy(&kept.program, &self.folder)
    }

    /// Submits a job for it.
    pub fn submit(&self) -> Result<(), Fault> {
        let kept = self.kept()?;
        let mut slurm = Slurm::new(kept.request);
        slurm.start_copy(&kept.program, &self.folder)?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.folder.join("jobs"))
            .map_err(|why| at(&self.folder, &why))?;
        let notes = slurm.notes().into_iter().filter(|note| note.starts_with("slurm "));
        let lines: String = notes.map(|note| note + "\n").collect();
        file.write_all(lines.as_bytes()).map_err(|why| at(&self.folder, &why))
    }

    /// Removes its folder; what cannot be removed is shown by `queue`.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// The notes of the jobs that were submitted, the newest last.
    pub fn jobs(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("jobs")).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    /// Looks at its newest job, and does what follows: releases Slurm's hold, puts it back into the
    /// queue, submits another where Slurm has lost it. `slurm` has the memory of earlier looks.
    pub fn tend(&self, slurm: &mut Slurm) -> Result<Progress, Fault> {
        if let Some(code) = self.ended() {
            return Ok(Progress::Ended(code));
        }
        let jobs = self.jobs();
        let Some(newest) = jobs.last() else {
            return Ok(Progress::Abandoned("no job was submitted for it".to_string()));
        };
        slurm.follow(newest)?;
        let seen = slurm.look()?;
        // It may have ended between the two looks.
        if let Some(code) = self.ended() {
            return Ok(Progress::Ended(code));
        }
        let state = seen.into_iter().next_back().map(|seen| seen.state);
        match state {
            Some(WorkerState::Pending(why)) => Ok(Progress::Waits(why)),
            Some(WorkerState::Running(node)) => Ok(Progress::Runs(node)),
            Some(WorkerState::Unknown(why)) => Ok(Progress::Unknown(why)),
            Some(WorkerState::Ended(End::Code(0))) => Ok(Progress::Unknown(
                "Slurm says that it is complete; its folder does not say so yet".to_string(),
            )),
            Some(WorkerState::Ended(End::Lost(why))) if why == Slurm::LOST => {
                if jobs.len() >= JOBS_MAX {
                    return Ok(Progress::Abandoned(why));
                }
                *slurm = Slurm::default();
                self.submit().map(|()| Progress::Waits("submitted again".to_string()))
            }
            Some(WorkerState::Ended(end)) => Ok(Progress::Abandoned(end.to_string())),
            None => Ok(Progress::Unknown("no job is known".to_string())),
        }
    }

    fn kept(&self) -> Result<Kept, Fault> {
        serde_json::from_slice(&self.read("request.json")?)
            .map_err(|why| at(&self.folder.join("request.json"), &why.into()))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let path = self.folder.join(name);
        fs::read(&path).map_err(|why| at(&path, &why))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.folder.join(name);
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(|why| at(&path, &why))
    }
}

/// No word has a zero in it.
fn joined(words: &[OsString]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    words.join(&0)
}

fn at(path: &Path, why: &io::Error) -> Fault {
    Fault::new(Class::Local, format!("'{}': {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_what_was_typed() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path().join("a/b");
        let words: Vec<OsString> =
            ["copy", "-r", "a 'b'\n$(c)", "", "host:d"].map(Into::into).into();
        let request = Request { partition: Some("dtn".into()), ..Request::default() };
        let program = Path::new("/bin/datapump");
        let made = Submitted::create(&parent, "1", &words, program, &request).unwrap();
        assert_eq!(made.words().unwrap(), words);
        assert_eq!(made.directory().unwrap(), std::env::current_dir().unwrap());
        assert_eq!(Submitted::all(&parent), std::slice::from_ref(&made));
        let script = made.script().unwrap();
        assert!(!script.contains("(c)") && script.contains("--partition=dtn"), "{script}");
        assert_eq!(made.ended(), None);
        let unsent = made.tend(&mut Slurm::default()).unwrap();
        assert!(matches!(unsent, Progress::Abandoned(_)), "{unsent:?}");
        made.set_ended(7).unwrap();
        assert_eq!(made.tend(&mut Slurm::default()).unwrap(), Progress::Ended(7));
        assert!(Submitted::create(&parent, "1", &words, program, &request).is_err(), "it is there");
        assert!(Submitted::open(place.path()).is_err());
    }
}
