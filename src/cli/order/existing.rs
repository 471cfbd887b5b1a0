//! What happens to what exists at the destination.

use crate::cli::options::copying;
use crate::cli::typed::Typed;
use base::settings::{Delete, Overwrite, Settings, SkipUnchanged};

/// Sets what is skipped, replaced and deleted.
pub(super) fn say(settings: &mut Settings, typed: &Typed) -> Result<(), String> {
    settings.delete = match (typed.has(&copying::DELETE_EXCLUDED), typed.has(&copying::DELETE)) {
        (true, _) => Delete::Excluded,
        (false, true) => Delete::On,
        (false, false) => Delete::Off,
    };
    let (is_mirror, is_update) = (settings.delete != Delete::Off, typed.has(&copying::UPDATE));
    // If both are typed, the thorough one counts.
    settings.skip_unchanged =
        match (typed.has(&copying::CHECKSUM), typed.has(&copying::SKIP_UNCHANGED)) {
            (true, _) => SkipUnchanged::Checksum,
            (false, true) => SkipUnchanged::Times,
            (false, false) if is_mirror || is_update => SkipUnchanged::Times,
            (false, false) => Settings::default().skip_unchanged,
        };
    if is_mirror {
        // A mirror has what its source has.
        settings.overwrite = Overwrite::Always;
    }
    if is_update {
        settings.overwrite = Overwrite::Older;
    }
    // An explicit one counts, but not one that stands farther from the command line.
    if !typed.overrides(&copying::UPDATE, &copying::OVERWRITE) {
        typed.set(&mut settings.overwrite, &copying::OVERWRITE)?;
    }
    Ok(())
}
