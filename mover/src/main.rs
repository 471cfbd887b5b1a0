//! The far side alone, for a host that others copy to and from: without command line, results store
//! and cost model. Copies name it with `--remote-datapump datapump-peer`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use base::fault::Class;
use mover::remote::restriction::PeerOptions;
use mover::remote::{peer, version};

/// musl's own is slow where much is allocated.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mover::io::system::outlive_file_size_limit();
    let asked: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(code) = mover::remote::installed::asked(&asked, &["peer"]) {
        return ExitCode::from(code);
    }
    let mut words = std::env::args_os().skip(1);
    let command = words.next();
    if command.as_deref() == Some("--version".as_ref()) {
        let told = writeln!(io::stdout(), "datapump-peer {}", version::text());
        return if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match options(command, words) {
        Ok(options) => ExitCode::from(peer::main(&options, String::new)),
        Err(why) => {
            let text = format!(
                "datapump-peer: {why}; it is started by 'datapump copy' at another host, as \
                 'datapump-peer peer', or by a command in authorized_keys\n"
            );
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(Class::Usage.exit_code())
        }
    }
}

fn options(
    command: Option<OsString>,
    words: impl Iterator<Item = OsString>,
) -> Result<PeerOptions, String> {
    if command.as_deref() != Some("peer".as_ref()) {
        return Err("the first word is not 'peer'".into());
    }
    let options = PeerOptions::parse(words)?;
    options.restriction()?;
    Ok(options)
}
