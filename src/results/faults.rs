//! Errors of the store, in words that say what to do.

use std::path::Path;

use crate::results::BUSY_PATIENCE;
use crate::results::schema::Unusable;
use base::fault::{Class, Fault};
use rusqlite::ErrorCode;

pub(super) fn is_busy(why: &rusqlite::Error) -> bool {
    matches!(why.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// True if the store itself is unusable, not only busy, newer, or closed to this user.
pub(super) fn is_damage(why: &Unusable) -> bool {
    use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, PermissionDenied, ReadOnly};
    match why {
        Unusable::Foreign => true,
        Unusable::Newer(_) => false,
        Unusable::Sqlite(why) => !matches!(
            why.sqlite_error_code(),
            Some(DatabaseBusy | DatabaseLocked | CannotOpen | PermissionDenied | ReadOnly)
        ),
    }
}

/// What SQLite says, as a fault with what to do next.
pub(super) fn fault(doing: &str, path: &Path, why: &rusqlite::Error) -> Fault {
    let (class, reason, next) = match why.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            (Class::NoSpace, "no space left on device".to_string(), "make room, or name another")
        }
        Some(ErrorCode::NotADatabase) => {
            (Class::Local, "it is not an SQLite database".to_string(), "name another")
        }
        Some(ErrorCode::DatabaseCorrupt) => (
            Class::Local,
            format!("it is damaged ({why})"),
            "move it away and a new one is made, or name another",
        ),
        Some(ErrorCode::ReadOnly) => {
            (Class::Local, "it is read-only".to_string(), "change its mode, or name another")
        }
        Some(ErrorCode::CannotOpen) => (
            Class::Local,
            "it or its folder cannot be opened".to_string(),
            "make both readable and writable, or name another",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            Class::Local,
            format!("another program has locked it for {} s", BUSY_PATIENCE.as_secs()),
            "try again when that has ended, or name another",
        ),
        _ => (Class::Local, why.to_string(), "repair it, or name another"),
    };
    let path = path.display();
    Fault::new(
        class,
        format!("cannot {doing} the results store '{path}': {reason}; {next} with --results"),
    )
}

pub(super) const ANOTHER: &str = "name another with --results";
