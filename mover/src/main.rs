//! The far side alone, for a host that others copy to and from: without command line, results store
//! and cost model. Copies name it with `--remote-datapump datapump-peer`.

use std::process::ExitCode;

use base::cpus::Cpus;
use base::fault::Class;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let cpus = match words[..] {
        ["peer"] => Ok(None),
        ["peer", option] => {
            option.strip_prefix("--cpus=").map(Cpus::parse).transpose().map_err(drop)
        }
        _ => Err(()),
    };
    match cpus {
        Ok(cpus) => ExitCode::from(mover::remote::peer::main(cpus.as_ref(), String::new())),
        // It speaks only with another datapump: there is nobody to tell more.
        Err(()) => ExitCode::from(Class::Usage.exit_code()),
    }
}
