//! Why a name is not given.

use crate::io::volume::{Volume, show};
use base::fault::{Class, Fault};

/// The fault when a name exists already.
pub fn exists(volume: &dyn Volume, path: &[u8]) -> Fault {
    let name = show(volume, path);
    let text = format!(
        "'{name}' exists: --update (-u) replaces what is older, --overwrite always replaces all"
    );
    Fault::new(Class::Local, text)
}

/// The fault when something has a name that is never replaced.
pub fn special(volume: &dyn Volume, path: &[u8]) -> Fault {
    let name = show(volume, path);
    let text = format!("'{name}' is a device, pipe or socket: it is not replaced; remove it first");
    Fault::new(Class::Local, text)
}
