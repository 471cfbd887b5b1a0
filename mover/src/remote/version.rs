//! What this build is, for `--version`.

use crate::wire::message::{VERSION_MAX, VERSION_MIN};
use base::codec::Codec;

/// The version, and below it the commit, the target, what is built in, and the protocol.
pub fn text() -> String {
    let environment = match cfg!(target_env = "musl") {
        true => "musl",
        false if cfg!(target_env = "gnu") => "gnu",
        false => "unknown",
    };
    let codecs = (1..).map_while(Codec::from_code).map(Codec::name);
    let codecs = codecs.collect::<Vec<_>>().join(" ");
    let protocol = match VERSION_MIN == VERSION_MAX {
        true => VERSION_MAX.to_string(),
        false => format!("{VERSION_MIN} to {VERSION_MAX}"),
    };
    format!(
        "{}\ncommit:   {}\ntarget:   {}-{}-{environment}\nfeatures: {} tls {codecs}\n\
         protocol: {protocol}",
        env!("CARGO_PKG_VERSION"),
        option_env!("DATAPUMP_COMMIT").unwrap_or("not recorded"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        if cfg!(target_os = "linux") { "io_uring" } else { "threads" },
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_names_what_was_built() {
        let text = super::text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (5, env!("CARGO_PKG_VERSION")), "{text}");
        assert!(lines[2].contains(std::env::consts::ARCH) && lines[3].contains("zstd"), "{text}");
    }
}
