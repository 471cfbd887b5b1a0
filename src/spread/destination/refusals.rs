//! Why a destination cannot be had.

use std::path::Path;

use crate::spread::folder::holder_of;
use base::fault::{Class, Fault};

pub(super) fn is_anothers(destination: &Path, job: &str) -> Fault {
    Fault::usage(format!(
        "another spread has '{}' as its destination; its job folder is '{job}'. 'datapump spread \
         status {job}' shows it, 'resume' continues it, and 'cancel --forget' gives it up. Where \
         that folder is gone, remove '{}' once none of its workers runs",
        destination.display(),
        holder_of(destination).display()
    ))
}

pub(super) fn has_no_links(destination: &Path) -> Fault {
    let text = format!(
        "'{}' is on a file system without hard links, by which the workers of a spread give a file \
         its name and replace nothing: use 'copy' there",
        destination.display()
    );
    Fault::new(Class::Local, text)
}
