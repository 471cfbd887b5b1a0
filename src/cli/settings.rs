//! What several commands derive from their options: the settings of a transfer, and the other host.

use super::options::{copying, moving, recording, remote, storage};
use super::typed::Typed;
use base::job::{Install, Remote};
use base::settings::{Pace, PathSamples, Settings};

/// The settings that the command has options for; the others have their defaults.
pub(super) fn settings(typed: &Typed) -> Result<Settings, String> {
    let mut settings = Settings {
        dscp: typed.maybe(&moving::DSCP)?,
        lockstep: typed.maybe(&moving::LOCKSTEP)?,
        errors_max: typed.maybe(&copying::MAX_ERRORS)?,
        ..Settings::default()
    };
    match typed.maybe(&moving::STREAMS)? {
        Some(Some(streams)) => settings.streams = streams,
        Some(None) => settings.streams_auto = true,
        None => {}
    }
    typed.set(&mut settings.depth_source, &moving::DEPTH_SOURCE)?;
    typed.set(&mut settings.depth_sink, &moving::DEPTH_SINK)?;
    typed.set(&mut settings.window_bytes, &moving::WINDOW)?;
    typed.set(&mut settings.congestion, &moving::CONGESTION)?;
    typed.set(&mut settings.rate, &moving::RATE)?;
    typed.set(&mut settings.pace, &moving::PACE)?;
    typed.set(&mut settings.seal, &moving::SEAL)?;
    typed.set(&mut settings.digest, &moving::DIGEST)?;
    typed.set(&mut settings.verify, &moving::VERIFY)?;
    settings.digest_also = typed.maybe(&moving::DIGEST_ALSO)?.unwrap_or_default();
    typed.set(&mut settings.receive, &moving::RECEIVE)?;
    typed.set(&mut settings.stall, &moving::STALL)?;
    typed.set(&mut settings.engine, &storage::ENGINE)?;
    typed.set(&mut settings.direct, &storage::DIRECT)?;
    typed.set(&mut settings.fsync, &storage::FSYNC)?;
    typed.set(&mut settings.preallocate, &storage::PREALLOCATE)?;
    typed.set(&mut settings.memory_bytes, &storage::MEMORY)?;
    settings.request_bytes = settings.usual_request_bytes();
    typed.set(&mut settings.request_bytes, &moving::REQUEST_SIZE)?;
    typed.set(&mut settings.path_samples, &recording::PATH_SAMPLES)?;
    Ok(settings)
}

/// What does not go with a number of streams that is chosen while a copy runs.
pub(super) fn streams_agree(settings: &Settings) -> Result<(), String> {
    let why = match settings {
        Settings { streams_auto: false, .. } => return Ok(()),
        Settings { pace: Pace::Fixed(_), .. } => {
            "--pace with a rate is divided among the streams and --streams auto changes their \
             number: write a number, or leave --pace out"
        }
        Settings { path_samples: PathSamples::Off, .. } => {
            "--streams auto chooses by samples and --path-samples off takes none: leave one out"
        }
        _ => return Ok(()),
    };
    Err(why.into())
}

/// How the other host is reached.
pub(super) fn remote(typed: &Typed) -> Result<Remote, String> {
    let port = typed.maybe(&remote::PORT)?.or(typed.maybe(&remote::PORT_THERE)?);
    let identity = typed.maybe(&remote::IDENTITY)?.or(typed.maybe(&remote::IDENTITY_THERE)?);
    let mut far = Remote {
        ssh: ssh_to(typed.value(&remote::SSH)?, port, identity),
        datapump: typed.value(&remote::REMOTE_DATAPUMP)?,
        ports: typed.maybe(&remote::PORTS)?,
        cpus: typed.maybe(&remote::REMOTE_CPUS)?,
        ..Remote::default()
    };
    typed.set(&mut far.addresses, &remote::ADDRESSES)?;
    typed.set(&mut far.retry_for, &remote::RETRY_FOR)?;
    typed.set(&mut far.install, &remote::INSTALL)?;
    match (&far.datapump, far.install) {
        (Some(program), Install::Always) => Err(format!(
            "--install always sends a program, and --remote-datapump '{program}' names one that is \
             there: leave one out"
        )),
        _ => Ok(far),
    }
}

/// The command of ssh with a port and a key. They come first: ssh takes the first of two ports.
pub(super) fn ssh_to(
    ssh: Option<Vec<String>>,
    port: Option<u16>,
    identity: Option<String>,
) -> Option<Vec<String>> {
    if port.is_none() && identity.is_none() {
        return ssh;
    }
    let mut words = ssh.unwrap_or_else(|| vec!["ssh".into()]);
    let port = port.into_iter().flat_map(|port| ["-p".into(), port.to_string()]);
    let identity = identity.into_iter().flat_map(|file| ["-i".into(), file]);
    words.splice(1..1, port.chain(identity));
    Some(words)
}

/// The same for a copy, whose number of streams is ours to choose where it was not given.
pub(super) fn remote_of_copy(typed: &Typed) -> Result<Remote, String> {
    let may_have_fewer_streams = typed.value(&moving::STREAMS)?.is_none();
    Ok(Remote { may_have_fewer_streams, ..remote(typed)? })
}
