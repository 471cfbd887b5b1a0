//! `datapump spread cancel`: a job is stopped, or given up.

use std::path::PathBuf;
use std::time::Instant;

use super::{concluded, job};
use crate::cli::console::Console;
use crate::cli::options::{remote, spreading};
use crate::cli::order::Show;
use crate::cli::progress::Collected;
use crate::cli::typed::Typed;
use crate::cli::{conclude, start};
use crate::spread::ending::{Forgotten, forget, is_done, receipt_path};
use crate::spread::folder::JobFolder;
use crate::spread::records::Control;
use base::fault::Fault;

/// The arguments of `spread cancel`.
#[derive(Debug)]
pub(crate) struct CancelArgs {
    job: PathBuf,
    ssh: Option<Vec<String>>,
    forget: bool,
    show: Show,
}

impl CancelArgs {
    pub(in crate::cli) fn of(typed: &Typed) -> Result<CancelArgs, String> {
        let forget = typed.has(&spreading::FORGET);
        let ssh = typed.value(&remote::SSH)?;
        Ok(CancelArgs { job: job(typed), ssh, forget, show: Show::of(typed)? })
    }
}

pub(in crate::cli) fn run_cancel(args: &CancelArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    console.event(&start("spread cancel", vec![args.job.display().to_string()], None, None));
    let done = match args.forget {
        true => give_up(args),
        false => cancel(args),
    };
    conclude(&console, done.map(|text| concluded(text, None)), Collected::default())
}

fn cancel(args: &CancelArgs) -> Result<String, Fault> {
    let folder = JobFolder::open(&args.job)?;
    let job = folder.path().display();
    if is_done(&folder) {
        return Ok(already_done(&folder));
    }
    folder.set_control(Control::cancelled())?;
    Ok(format!(
        "{job}: its workers stop within {:.0} s; 'spread resume {job}' continues, and begins files \
         anew that are not complete\n",
        folder.manifest.times.beat().seconds() + 5.0
    ))
}

fn give_up(args: &CancelArgs) -> Result<String, Fault> {
    let folder = JobFolder::open_to_forget(&args.job)?;
    Ok(match forget(&folder, args.ssh.as_deref())? {
        Forgotten::GivenUp => format!(
            "{}: given up; what was committed stays at the destination\n",
            folder.path().display()
        ),
        Forgotten::Done => already_done(&folder),
    })
}

pub(super) fn already_done(folder: &JobFolder) -> String {
    let (job, receipt) = (folder.path(), receipt_path(folder.path()));
    format!(
        "{}: done already, nothing to do; {} lists its files\n",
        job.display(),
        receipt.display()
    )
}
