//! No secret is in anything that the program shows or keeps, also when a command fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::data::{files_below, write_file};
use crate::support::scripted_store::{Answer, ScriptedStore};
use crate::support::{Scene, each, run};

const SECRET: &str = "PlantedSecret0Key";
const TOKEN: &str = "PlantedSecret1Token";
const IN_FILE: &str = "PlantedSecret2Profile";
const IN_COMMAND: &str = "PlantedSecret3Command";

/// How a store fails, each of its error types once.
const FAILURES: [&str; 8] =
    ["denied", "expired", "unavailable", "damaged", "no-such", "contradictory", "gone", "right"];

const COMMANDS: [&str; 10] = [
    "copy --json s3://bucket/k @/x --log @/log",
    "copy -v -r s3://bucket/t/ @/x --manifest @/sums",
    "copy -v @/f s3://bucket/k --log @/log --explain",
    "copy --json -r @/src/ s3://bucket/t",
    "copy --json -r --checksum @/src/ s3://bucket/t",
    "copy -n -r s3://bucket/t/ @/x",
    "verify @/receipt s3://bucket/t",
    "clean -n s3://bucket/t",
    "measure s3://bucket/t",
    "sweep s3://bucket/t",
];

fn answer(failure: &str, method: &str) -> Answer {
    match failure {
        "denied" => Answer::refused(403, "AccessDenied"),
        "expired" => Answer::refused(400, "ExpiredToken"),
        "unavailable" => Answer::refused(400, "SlowDownForever"),
        "damaged" => Answer::text(200, "<ListBucketResult><Contents><Key>"),
        "no-such" => Answer::refused(404, "NoSuchBucket"),
        "contradictory" => Answer::text(
            200,
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        ),
        _ if method == "PUT" => Answer::Of(200, "ETag: \"1\"\r\n".into(), Vec::new()),
        _ => Answer::Of(200, "ETag: \"1\"\r\n".into(), b"x".to_vec()),
    }
}

#[test]
fn no_secret_is_shown_or_kept() {
    let cases = FAILURES.iter().flat_map(|failure| COMMANDS.map(|line| (failure, line)));
    each(cases, |(failure, line)| {
        let scene = Scene::new();
        for name in ["f", "src/a", "src/b"] {
            fs::create_dir_all(scene.path("src")).unwrap();
            write_file(&scene.path(name), 1, 1000);
        }
        let sum = "0".repeat(64);
        fs::write(scene.path("receipt"), format!("{sum}  a\n")).unwrap();
        let way = (**failure).to_string();
        let store = ScriptedStore::new(move |asked| answer(&way, &asked.method));
        let mut command = store.command(&scene, line);
        command.env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_SESSION_TOKEN", TOKEN);
        command.env("XDG_STATE_HOME", scene.path("state"));
        command.env("DATAPUMP_RESULTS", scene.path("results.db"));
        if **failure == "gone" {
            command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
        }
        let ran = run::to_end(command, b"");
        assert!(!ran.stderr.contains("unexpected argument"), "{ran}");
        check(&scene, &ran);
    });
}

fn check(scene: &Scene, ran: &run::Ran) {
    let shown = format!("{}{}", ran.stdout_text(), ran.stderr);
    assert!(!shown.contains("PlantedSecret"), "{ran}");
    assert!(!shown.contains("panicked"), "{ran}");
    for path in files_below(scene.path("").as_path()) {
        if path.starts_with(scene.path("aws")) {
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let is_there = bytes.windows(13).any(|part| part == b"PlantedSecret");
        assert!(!is_there, "{} has a secret\n{ran}", path.display());
    }
}

/// Credentials of a profile, of a program that a profile names and that fails, and of a service.
#[test]
fn credentials_that_are_not_found_are_not_shown() {
    let profile = format!("[p]\naws_access_key_id = I\naws_secret_access_key = {IN_FILE}\n");
    let program = format!("[p]\ncredential_process = false --key {IN_COMMAND}\n");
    let odd = format!("[p]\naws_secret_access_key = {IN_FILE}\n");
    each([profile, program, odd], |file| {
        let scene = Scene::new();
        fs::create_dir(scene.path("aws")).unwrap();
        fs::write(scene.path("aws/credentials"), file).unwrap();
        fs::set_permissions(scene.path("aws"), fs::Permissions::from_mode(0o700)).unwrap();
        let store = ScriptedStore::new(|_| Answer::refused(403, "InvalidAccessKeyId"));
        let line = "copy --json -v s3://bucket/k @/x --s3-profile p --log @/log";
        let mut command = store.command(&scene, line);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_CONFIG_FILE", scene.path("aws/credentials"));
        command.env("AWS_SHARED_CREDENTIALS_FILE", scene.path("aws/credentials"));
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("XDG_STATE_HOME", scene.path("state"));
        let ran = run::to_end(command, b"");
        assert_ne!(ran.code, 0, "{ran}");
        check(&scene, &ran);
    });
}

/// Who looks at the processes of a host sees none.
#[test]
fn no_secret_is_in_a_command_line() {
    let scene = Scene::new();
    let store = ScriptedStore::new(|_| Answer::Silence);
    let mut command = store.command(&scene, "copy s3://bucket/k @/x");
    command.env("AWS_SECRET_ACCESS_KEY", SECRET).env("AWS_SESSION_TOKEN", TOKEN);
    let mut running = run::start(command);
    store.wait_for_one();
    let words = fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&words).contains("PlantedSecret"));
    running.kill();
}
