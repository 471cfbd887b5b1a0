use super::*;
use crate::cli::patterns;
use crate::cli::settings::settings;
use crate::cli::typed::{Stop, Typed};
use base::settings::{Overwrite, Settings};

/// What a copy to a host would have, with this file and these variables.
struct Setup {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Setup {
    fn new(text: &str) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), text).unwrap();
        Setup { folder, variables: Vec::new() }
    }

    fn outside(&self) -> Outside {
        let variables = self.variables.iter().map(|(name, value)| (name.to_string(), value.into()));
        Outside {
            file: Some(self.folder.path().join("config.toml")),
            variables: variables.collect(),
        }
    }

    fn parse(&self, line: &str) -> Result<Typed, String> {
        let line = line.replace("@/", &format!("{}/", self.folder.path().display()));
        let words = std::iter::once("datapump").chain(line.split_whitespace());
        let words: Vec<OsString> = words.map(OsString::from).collect();
        Typed::parse_with(&words, &self.outside()).map_err(|stop| match stop {
            Stop::Wrong { text, .. } => {
                text.replace(&self.folder.path().display().to_string(), "@")
            }
            Stop::Help(text) => panic!("{text}"),
        })
    }

    fn settings(&self, line: &str) -> Settings {
        settings(&self.parse(line).unwrap()).unwrap()
    }
}

const FILE: &str = r#"
[defaults]
streams = 2
window = "1M"
exclude = ["*.o", "*.tmp"]

[host."dtn*"]
streams = 3
ssh = "ssh -v"

[host."me@dtn2"]
streams = 5

[host.dtn9]
profile = "@/measured"
window = "3M"
"#;

#[test]
fn what_is_nearer_to_the_command_line_counts() {
    let mut setup = Setup::new(FILE);
    let cases = [
        ("copy a b", 2),
        ("copy a other:", 2),
        ("copy a dtn1:", 3),
        ("copy you@dtn1:x .", 3),
        ("copy ssh://dtn1:22/x .", 3),
        ("copy a dtn2:", 3),
        ("copy a me@dtn2:", 5),
        ("copy a me@dtn2: -s 7", 7),
        ("copy a dtn1: --config none", 4),
    ];
    for (line, streams) in cases {
        assert_eq!(setup.settings(line).streams, streams, "{line}");
    }
    setup.variables = vec![("DATAPUMP_STREAMS", "6"), ("DATAPUMP_RATE", "1MB")];
    for (line, streams) in [("copy a b", 6), ("copy a me@dtn2:", 6), ("copy a dtn1: -s 7", 7)] {
        assert_eq!(setup.settings(line).streams, streams, "{line}");
    }
    setup.variables = vec![("DATAPUMP_CONFIG", "none")];
    assert_eq!(setup.settings("copy a dtn1:").streams, 4);
}

#[test]
fn patterns_of_all_places_count_in_their_order() {
    let typed = Setup::new(FILE).parse("copy a b --include a.o").unwrap();
    assert_eq!(patterns::filters(&typed).unwrap(), ["*.o", "*.tmp", "!a.o"]);
}

#[test]
fn a_flag_can_be_switched_off() {
    let mut setup = Setup::new("[defaults]\narchive = true\n[host.a]\narchive = false\n");
    let has =
        |setup: &Setup, line: &str| setup.parse(line).unwrap().has(&options::copying::ARCHIVE);
    assert!(has(&setup, "copy x b:") && !has(&setup, "copy x a:"));
    setup.variables = vec![("DATAPUMP_ARCHIVE", "0")];
    assert!(!has(&setup, "copy x b:") && has(&setup, "copy -A x b:"));
    setup.variables = vec![("DATAPUMP_ARCHIVE", "1")];
    assert!(has(&setup, "copy x a:"));
}

/// A profile counts just below the setup that names it.
#[test]
fn profiles() {
    let mut setup = Setup::new("");
    let folder = setup.folder.path().display().to_string();
    let text = FILE.replace("@/", &format!("{folder}/"));
    fs::write(setup.folder.path().join("config.toml"), text).unwrap();
    fs::write(setup.folder.path().join("measured"), "streams 9\nwindow 2M\n").unwrap();
    let of = |setup: &Setup, line: &str| {
        let settings = setup.settings(line);
        (settings.streams, settings.window_bytes.unwrap_or(0) >> 20)
    };
    assert_eq!(of(&setup, "copy a dtn9:"), (9, 3), "over [host.\"dtn*\"], below its own table");
    assert_eq!(of(&setup, "copy a dtn1: --profile @/measured"), (9, 2), "over the file");
    assert_eq!(of(&setup, "copy a dtn9: --profile @/measured -s 1"), (1, 2));
    setup.variables = vec![("DATAPUMP_STREAMS", "6")];
    assert_eq!(of(&setup, "copy a dtn9:"), (6, 3));
    assert_eq!(of(&setup, "copy a dtn1: --profile @/measured"), (9, 2), "over variables");
}

/// Commands that are no copies take how a host is reached, and measurements nothing.
#[test]
fn other_commands() {
    let setup = Setup::new(FILE);
    let ssh = |line: &str| {
        let typed = setup.parse(line).unwrap();
        typed.value(&options::remote::SSH).unwrap().map(|words| words.join(" "))
    };
    assert_eq!(ssh("doctor dtn1").as_deref(), Some("ssh -v"));
    assert_eq!(ssh("doctor dtn1:folder").as_deref(), Some("ssh -v"));
    assert_eq!(ssh("net-test me@dtn1").as_deref(), Some("ssh -v"));
    assert_eq!(ssh("net-test other"), None);
    assert_eq!(ssh("model predict a dtn1:").as_deref(), Some("ssh -v"));
    assert_eq!(ssh("sweep --hosts dtn1"), None);
    assert_eq!(setup.settings("net-test dtn1").streams, 4, "not the streams of copies");
    assert_eq!(setup.settings("model predict a dtn1:").streams, 3);
}

#[test]
fn what_is_wrong_has_its_file_and_line() {
    let cases = [
        ("[defaults]\nstreams = 99\n", "line 2: --streams '99': write a number from 1 to 64"),
        ("[defaults]\n\nstraems = 9\n", "line 3: there is no option 'straems': the names are"),
        ("[defaults]\nrequest_size = 9\n", "line 2: there is no option 'request_size': write req"),
        ("streams = 9\n", "line 1: 'streams' is not below [defaults]"),
        ("[default]\nstreams = 9\n", "line 1: 'default' is not below [defaults]"),
        ("defaults = 1\n", "line 1: 'defaults' is not below"),
        ("[host]\nx = 1\n", "line 2: 'x' is no host's table"),
        ("[host.\"a[\"]\n", "line 1: the pattern 'a[': unclosed"),
        ("[host.a]\nstreams = [1]\n", "line 2: streams is a array: write a string"),
        ("[host.a]\nexclude = [1, true]\n", "line 2: exclude is a boolean: write a string"),
        ("[defaults]\narchive = \"yes\"\n", "line 2: archive is a flag: write true or false"),
        ("[defaults]\nrate = false\n", "line 2: rate is a boolean: write a string"),
        ("[defaults]\ndry-run = true\n", "line 2: 'dry-run' is for one run"),
        ("[defaults]\nconfig = \"x\"\n", "line 2: 'config' is for one run"),
        ("[defaults]\nrate = \"100\"\n", "line 2: --rate '100': '100' has no unit of a rate"),
        ("[defaults\nstreams = 1\n", "line 1: "),
        ("[defaults]\nstreams = 1\nstreams = 2\n", "line 3: duplicate key"),
        ("[defaults]\nstreams = \n", "line 2: "),
        ("[defaults.a]\nstreams = 1\n", "line 1: there is no option 'a'"),
        ("\u{0}", "line 1: "),
    ];
    for (text, expect) in cases {
        let why = Setup::new(text).parse("copy a b").map(|_| ()).unwrap_err();
        let found = why.strip_prefix("'@/config.toml', ").unwrap_or(&why);
        assert!(found.starts_with(expect), "{text}: {why}");
    }
    // Of every host, not only the one that is typed.
    assert!(Setup::new("[host.a]\nx = 1\n").parse("copy a b:").is_err());
    for text in ["", "# nothing\n", "[defaults]\n", "[host]\n", "defaults.streams = 3\n"] {
        Setup::new(text).parse("copy a b").unwrap();
    }
    let mut setup = Setup::new("");
    setup.variables = vec![("DATAPUMP_STREAMS", "x"), ("DATAPUMP_UNKNOWN", "x")];
    let why = setup.parse("copy a b").map(|_| ()).unwrap_err();
    assert_eq!(why, "DATAPUMP_STREAMS: --streams 'x': write a number from 1 to 64, or auto");
    setup.variables = Vec::new();
    let why = setup.parse("copy a b --config @/none").map(|_| ()).unwrap_err();
    assert!(why.starts_with("cannot read the configuration '@/none': no such file"), "{why}");
    fs::remove_file(setup.folder.path().join("config.toml")).unwrap();
    setup.parse("copy a b").unwrap();
}

/// The other half of a contradiction may be in the file.
#[test]
fn a_contradiction_says_where_its_options_are_from() {
    let setup = Setup::new("[defaults]\nno-preserve = true\noverwrite = \"always\"\n");
    let typed = setup.parse("copy -A a b").unwrap();
    let why = crate::cli::order::CopyArgs::of(&typed).unwrap_err();
    assert!(why.contains("--archive keeps mode and time too"), "{why}");
    let setup = setup.folder.path().join("config.toml");
    let said = format!("(--no-preserve is from '{}', line 2)", setup.display());
    assert!(typed.with_origins("--no-preserve and -A".into()).ends_with(&said), "{why}");
    assert_eq!(typed.with_origins("--archive".into()), "--archive");
    let overwrite = typed.value(&options::copying::OVERWRITE);
    assert_eq!(overwrite, Ok(Some(Overwrite::Always)));
}

/// Of `--update` and `--overwrite` the one nearer to the command line counts, and side by side the
/// second, which is explicit.
#[test]
fn an_update_and_what_else_says_when_to_overwrite() {
    let never = "[defaults]\noverwrite = \"never\"\n";
    let update = "[defaults]\nupdate = true\n";
    let cases = [
        (never, "copy a b", Overwrite::Never),
        (never, "copy -u a b", Overwrite::Older),
        (never, "copy -u --delete -r a b", Overwrite::Older),
        (never, "copy -u --overwrite always a b", Overwrite::Always),
        (update, "copy a b", Overwrite::Older),
        (update, "copy a b --overwrite never", Overwrite::Never),
        ("[defaults]\nupdate = true\noverwrite = \"always\"\n", "copy a b", Overwrite::Always),
        ("[defaults]\noverwrite = \"always\"\nupdate = true\n", "copy a b", Overwrite::Always),
        ("", "copy --delete -r a b", Overwrite::Always),
    ];
    for (text, line, expect) in cases {
        let typed = Setup::new(text).parse(line).unwrap();
        let order = crate::cli::order::CopyArgs::of(&typed).unwrap().order;
        assert_eq!(order.job.settings.overwrite, expect, "{text}{line}");
        // The words that repeat it mean the same without the file.
        let words = ["datapump".to_string(), "copy".into(), "a".into(), "b".into()];
        let words: Vec<OsString> =
            words.into_iter().chain(typed.repeated()).map(OsString::from).collect();
        let again = Typed::parse(&words).unwrap();
        let order = crate::cli::order::CopyArgs::of(&again).unwrap().order;
        assert_eq!(order.job.settings.overwrite, expect, "{words:?}");
    }
}
