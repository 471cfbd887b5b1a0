//! Where a store is and who asks it: options, then the environment, then the files of AWS' tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use base::fault::{Class, Fault};
use mover::io::store::PartSize;

/// What a user says of a store on the command line. What is not said is found as AWS' own tools
/// find it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub endpoint: Option<String>,
    pub profile: Option<String>,
    pub region: Option<String>,
    /// A file of certificates that are trusted instead of the system's.
    pub ca: Option<PathBuf>,
    pub addressing: Addressing,
    /// Who asks pays for the transfer.
    pub requester_pays: bool,
    /// How long a store may be silent; 30 s where it is not said.
    pub silent_max: Option<Duration>,
    pub part_size: PartSize,
    pub requests: Requests,
}

/// Who says how many long requests are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// The user.
    #[default]
    AsAsked,
    /// What they move together.
    ByRate,
}

/// Where the bucket's name is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In front of the host's name at AWS, in the path elsewhere.
    #[default]
    Auto,
    Path,
    Host,
}

/// Variables, and files in the home folder, as they are when a command begins. Some are secrets, so
/// none shows itself.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    variables: BTreeMap<String, SecretString>,
    /// The sections of `config` and `credentials`, by their names; of both for one profile.
    profile: BTreeMap<String, SecretString>,
    pub profile_name: String,
    /// The user has named the profile to this program: it comes before variables.
    pub is_typed: bool,
}

impl Surroundings {
    pub(crate) fn look(options: &Options) -> Result<Surroundings, Fault> {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("AWS_") || NAMES.contains(&&name[..]))
            .collect();
        Surroundings::of(variables, options.profile.as_deref())
    }

    pub(crate) fn of(
        variables: BTreeMap<String, String>,
        profile: Option<&str>,
    ) -> Result<Surroundings, Fault> {
        let is_typed = profile.is_some();
        let hidden = |(name, value): (String, String)| (name, SecretString::from(value));
        let variables = variables.into_iter().map(hidden).collect();
        let surroundings = Surroundings { variables, is_typed, ..Surroundings::default() };
        let named = profile.map(String::from).or_else(|| surroundings.get("AWS_PROFILE"));
        let name = named.clone().unwrap_or_else(|| "default".to_string());
        let file = |variable: &str, usual: &str| match surroundings.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => Some(Path::new(&surroundings.get("HOME")?).join(".aws").join(usual)),
        };
        let read = |path: Option<PathBuf>| {
            path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
        };
        let in_config = match &name[..] {
            "default" => name.clone(),
            name => format!("profile {name}"),
        };
        let config = read(file("AWS_CONFIG_FILE", "config"));
        let credentials = read(file("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
        let found = [section(&config, &in_config), section(&credentials, &name)];
        if let (Some(named), [None, None]) = (&named, &found) {
            let text = format!(
                "there is no profile '{named}' in ~/.aws/config or ~/.aws/credentials: name one \
                 that is there with --s3-profile"
            );
            return Err(Fault::usage(text));
        }
        let profile = found.into_iter().flatten().flatten().map(hidden).collect();
        Ok(Surroundings { profile, profile_name: name, ..surroundings })
    }

    /// The folder of this program's state, where there is one.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        let named = self.get("XDG_STATE_HOME").map(PathBuf::from);
        let usual = || Some(PathBuf::from(self.get("HOME")?).join(".local/state"));
        let folder = named.filter(|path| path.is_absolute()).or_else(usual)?;
        Some(folder.join("datapump"))
    }

    pub(crate) fn get(&self, variable: &str) -> Option<String> {
        self.variables.get(variable).and_then(told)
    }

    /// What variables say, in this order, and the profile: it first where the user has typed it.
    pub(crate) fn said(&self, variables: &[&str], key: &str) -> Option<String> {
        let around = || variables.iter().find_map(|variable| self.get(variable));
        match self.is_typed {
            true => self.of_profile(key).or_else(around),
            false => around().or_else(|| self.of_profile(key)),
        }
    }

    pub(crate) fn of_profile(&self, key: &str) -> Option<String> {
        self.profile.get(key).and_then(told)
    }
}

fn told(value: &SecretString) -> Option<String> {
    Some(value.expose_secret()).filter(|value| !value.is_empty()).map(String::from)
}

/// Variables that are not AWS' own.
const NAMES: [&str; 2] = ["HOME", "XDG_STATE_HOME"];

/// The keys of one section; `None` where the file has no such section.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let (mut found, mut is_inside) = (None, false);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            is_inside = header.split_whitespace().eq(name.split_whitespace());
            if is_inside {
                found.get_or_insert_with(BTreeMap::new);
            }
            continue;
        }
        // What is indented belongs to a key above, such as "s3 =".
        if let (true, Some(found), Some((key, value)), false) =
            (is_inside, &mut found, trimmed.split_once('='), line.starts_with([' ', '\t']))
        {
            found.insert(key.trim().to_string(), value.trim().to_string());
        }
    }
    found
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub is_tls: bool,
    /// As in the header: without the scheme's own port.
    pub host: String,
    pub port: u16,
    /// In front of every path, without a slash at the end.
    pub base: String,
    pub in_host: bool,
    pub region: String,
}

impl Endpoint {
    pub(crate) fn of(options: &Options, around: &Surroundings) -> Result<Endpoint, Fault> {
        let region = options
            .region
            .clone()
            .or_else(|| around.said(&["AWS_REGION", "AWS_DEFAULT_REGION"], "region"))
            .unwrap_or_else(|| "us-east-1".to_string());
        let typed = options
            .endpoint
            .clone()
            .or_else(|| around.said(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"], "endpoint_url"));
        let is_aws = typed.is_none();
        let url = typed.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let in_host = match options.addressing {
            Addressing::Auto => is_aws,
            Addressing::Path => false,
            Addressing::Host => true,
        };
        Endpoint::parse(&url, in_host, region)
    }

    fn parse(url: &str, in_host: bool, region: String) -> Result<Endpoint, Fault> {
        let wrong = |why: &str| {
            let text = format!("the endpoint '{url}': {why}: write https://HOST[:PORT]");
            Fault::usage(text)
        };
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong("it begins with neither https:// nor http://")),
        };
        let (host, base) = rest.split_once('/').unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(wrong("credentials have no place in it"));
        }
        let usual = if is_tls { 443 } else { 80 };
        let port = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') && !name.is_empty() => {
                port.parse().map_err(|_| wrong("its port is no number"))?
            }
            _ => usual,
        };
        let bare = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => host,
        };
        if bare.is_empty() || bare.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("it has no host"));
        }
        let host = if port == usual { bare.to_string() } else { format!("{bare}:{port}") };
        let base = match base.trim_end_matches('/') {
            "" => String::new(),
            base => format!("/{base}"),
        };
        Ok(Endpoint { is_tls, host, port, base, in_host, region })
    }

    /// The host for a bucket, and the path of what is in it.
    pub(crate) fn host_and_base(&self, bucket: &str) -> (String, String) {
        // A certificate for *.host fits no name with dots in front of it.
        match self.in_host && !(self.is_tls && bucket.contains('.')) {
            true => (format!("{bucket}.{}", self.host), self.base.clone()),
            false => (self.host.clone(), format!("{}/{bucket}", self.base)),
        }
    }
}

/// A bucket's name, as S3 and most stores have it. It becomes part of a host's name.
pub(crate) fn check_bucket(bucket: &str) -> Result<(), Fault> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    match (3..=63).contains(&bucket.len()) && bucket.bytes().all(fits) {
        true => Ok(()),
        false => Err(Fault::new(
            Class::Usage,
            format!(
                "'{}' is no name of a bucket (3 to 63 letters, digits, dots and dashes): write \
                 s3://BUCKET/KEY",
                bucket.escape_default()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(pairs: &[(&str, &str)], profile: Option<&str>) -> Result<Surroundings, Fault> {
        let pairs = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Surroundings::of(pairs.collect(), profile)
    }

    #[test]
    fn endpoints_are_read() {
        let of = |url: &str| Endpoint::parse(url, false, "r".into());
        let cases = [
            ("https://h", (true, "h", 443, "")),
            ("http://h:80/", (false, "h", 80, "")),
            ("http://h:9000/a/b/", (false, "h:9000", 9000, "/a/b")),
            ("https://[::1]:1", (true, "[::1]:1", 1, "")),
            ("https://[::1]", (true, "[::1]", 443, "")),
        ];
        for (url, (is_tls, host, port, base)) in cases {
            let (host, base, region) = (host.to_string(), base.to_string(), "r".to_string());
            let expect = Endpoint { is_tls, host, port, base, in_host: false, region };
            assert_eq!(of(url), Ok(expect), "{url}");
        }
        for bad in
            ["h", "ftp://h", "http://", "http://:1", "http://h:x", "http://a@h", "http://a b"]
        {
            assert_eq!(of(bad).unwrap_err().class, Class::Usage, "{bad}");
        }
    }

    #[test]
    fn the_bucket_is_in_the_host_or_in_the_path() {
        let of = |in_host, is_tls, bucket: &str| {
            let scheme = if is_tls { "https" } else { "http" };
            let url = format!("{scheme}://h");
            Endpoint::parse(&url, in_host, "r".into()).unwrap().host_and_base(bucket)
        };
        assert_eq!(of(false, true, "b-1"), ("h".into(), "/b-1".into()));
        assert_eq!(of(true, true, "b-1"), ("b-1.h".into(), String::new()));
        assert_eq!(of(true, true, "b.1"), ("h".into(), "/b.1".into()));
        assert_eq!(of(true, false, "b.1"), ("b.1.h".into(), String::new()));
    }

    #[test]
    fn what_is_typed_comes_before_what_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_string()
        };
        let config = file(
            "config",
            "[default]\nregion = a\n# x\n[profile p]\nregion=b\nendpoint_url = http://p\n\
             s3 =\n  region = z\n",
        );
        let credentials = file("credentials", "[p]\naws_access_key_id = I\n[default]\n");
        let files =
            [("AWS_CONFIG_FILE", &config[..]), ("AWS_SHARED_CREDENTIALS_FILE", &credentials[..])];
        let plain = around(&files, None).unwrap();
        let endpoint = Endpoint::of(&Options::default(), &plain).unwrap();
        assert_eq!((&endpoint.host[..], endpoint.in_host), ("s3.a.amazonaws.com", true));
        let named = around(&files, Some("p")).unwrap();
        assert_eq!(named.of_profile("aws_access_key_id").as_deref(), Some("I"));
        let endpoint = Endpoint::of(&Options::default(), &named).unwrap();
        assert_eq!((&endpoint.host[..], &endpoint.region[..]), ("p", "b"));
        let pairs = [files[0], files[1], ("AWS_PROFILE", "p"), ("AWS_REGION", "c")];
        let pairs = around(&pairs, None).unwrap();
        let options = Options { endpoint: Some("http://t".into()), ..Options::default() };
        let endpoint = Endpoint::of(&options, &pairs).unwrap();
        assert_eq!((&endpoint.host[..], &endpoint.region[..]), ("t", "c"));
        let none = around(&files, Some("q")).unwrap_err();
        assert!(none.text.contains("no profile 'q'"), "{none}");
    }

    /// What each option is where some of these say it: the option itself, a profile that was typed,
    /// variables, a profile of `AWS_PROFILE`.
    #[test]
    fn every_option_with_a_default_from_outside_is_what_was_typed() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let text = "[profile p]\nregion = of-profile\nendpoint_url = http://of-profile\n\
                    ca_bundle = of-profile\naws_access_key_id = of-profile\n\
                    aws_secret_access_key = x\n[profile empty]\n";
        std::fs::write(&config, text).unwrap();
        let file = ("AWS_CONFIG_FILE", config.to_str().unwrap());
        let nothing = ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
        let variables = [
            ("AWS_REGION", "of-variable"),
            ("AWS_ENDPOINT_URL", "http://of-variable"),
            ("AWS_CA_BUNDLE", "of-variable"),
            ("AWS_ACCESS_KEY_ID", "of-variable"),
            ("AWS_SECRET_ACCESS_KEY", "y"),
        ];
        let named = ("AWS_PROFILE", "p");
        let cases = [
            ("typed", Some("p"), true, "typed"),
            ("", Some("p"), true, "of-profile"),
            ("", Some("p"), false, "of-profile"),
            ("", None, true, "of-variable"),
            ("", None, false, "of-profile"),
        ];
        for (typed, profile, has_variables, expect) in cases {
            let more = if has_variables { &variables[..] } else { &[] };
            let pairs = [&[file, nothing, named][..], more].concat();
            let around = around(&pairs, profile).unwrap();
            let typed = Some(typed).filter(|typed| !typed.is_empty());
            let options = Options {
                endpoint: typed.map(|host| format!("http://{host}")),
                region: typed.map(String::from),
                ca: typed.map(PathBuf::from),
                ..Options::default()
            };
            let endpoint = Endpoint::of(&options, &around).unwrap();
            assert_eq!((&endpoint.host[..], &endpoint.region[..]), (expect, expect));
            let ca = crate::trust::named(&options, &around);
            assert_eq!(ca.as_deref(), Some(Path::new(expect)));
            let found = crate::credentials::find(&around, &Default::default()).unwrap();
            let keys = if typed.is_some() { "of-profile" } else { expect };
            assert_eq!(found.keys.id, keys, "{profile:?}, {has_variables}");
        }
        // Nor are keys taken from elsewhere where a typed profile has none.
        let off = ("AWS_EC2_METADATA_DISABLED", "true");
        let pairs = [&[file, nothing, off][..], &variables].concat();
        let none = around(&pairs, Some("empty")).unwrap();
        let fault = crate::credentials::find(&none, &Default::default()).unwrap_err();
        assert!(fault.text.contains("'empty' has none"), "{fault}");
    }

    #[test]
    fn buckets_have_names() {
        for good in ["abc", "a.b-c", "my_bucket"] {
            assert_eq!(check_bucket(good), Ok(()), "{good}");
        }
        for bad in ["", "ab", "a b c", "a/b", "b@host", &"x".repeat(64)] {
            assert!(check_bucket(bad).is_err(), "{bad}");
        }
    }
}
