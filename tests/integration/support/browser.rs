//! A real browser without a window: Debian's Chromium, driven through a pipe (the DevTools
//! protocol). It reaches no other host: every name is answered with "not found".

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};

use super::{PATIENCE, need};

pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    commands: u64,
    _profile: tempfile::TempDir,
}

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub width: u32,
    pub is_dark: bool,
    pub has_script: bool,
    pub is_printed: bool,
}

pub(crate) const WIDE: Look =
    Look { width: 1440, is_dark: false, has_script: true, is_printed: false };
pub(crate) const PHONE: Look = Look { width: 375, ..WIDE };

/// All that a page of a file is looked at with.
const LOOKS: [Look; 5] = [
    WIDE,
    Look { is_dark: true, ..WIDE },
    PHONE,
    Look { has_script: false, is_dark: true, ..PHONE },
    Look { is_printed: true, width: 800, ..WIDE },
];

/// A page that is open in a tab.
pub(crate) struct Tab<'a> {
    browser: &'a mut Browser,
    session: String,
    /// What the page said to its console, errors of the browser about it too.
    pub said: Vec<String>,
    /// Every address that was asked for, data within the page left out.
    pub requests: Vec<String>,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let program = need("chromium", "chromium");
        let profile = tempfile::tempdir().unwrap();
        // It reads commands from descriptor 3 and writes answers to descriptor 4.
        let line = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", line]).arg(program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (found, from) = mpsc::channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if found.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let to = child.stdin.take().unwrap();
        Browser { child, to, from, commands: 0, _profile: profile }
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn open(&mut self, address: &str, look: Look) -> Tab<'_> {
        let target = self.answer(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.answer(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().unwrap().to_string();
        let mut tab = Tab { browser: self, session, said: Vec::new(), requests: Vec::new() };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.command(&format!("{domain}.enable"), &json!({}));
        }
        tab.look(look);
        tab.command("Page.navigate", &json!({ "url": address }));
        tab.wait_for("Page.loadEventFired");
        tab
    }

    pub(crate) fn open_file(&mut self, path: &Path, look: Look) -> Tab<'_> {
        self.open(&format!("file://{}", path.display()), look)
    }

    /// Looks at a page in a file in all ways: nothing is wrong with what is drawn, said or asked.
    pub(crate) fn looks_at(&mut self, page: &Path, name: &str) {
        for look in LOOKS {
            let at = format!("{name} {look:?}");
            let mut tab = self.open_file(page, look);
            let title = tab.value("document.title");
            assert_ne!(title, "run", "{at}: a name was run as a script");
            let seen = tab.value(SEEN);
            for key in ["counts", "unnamed", "faint", "outside"] {
                assert_eq!(seen[key], json!([]), "{at}: {key}");
            }
            assert!(seen["figures"].as_u64() >= Some(1), "{at}: {seen}");
            assert_eq!(seen["scripts"], 1, "{at}: only ours");
            assert_eq!(seen["dark"], look.is_dark && !look.is_printed, "{at}");
            assert_eq!(tab.said, Vec::<String>::new(), "{at}");
            assert_eq!(tab.requests, [format!("file://{}", page.display())], "{at}");
            if look.has_script {
                tab.is_accessible(&at);
            }
            let scheme = if look.is_dark { "dark" } else { "light" };
            tab.keep_picture(&format!("{name}-{}-{scheme}", look.width));
        }
    }

    /// The result of a command without a tab.
    fn answer(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let id = self.send(session, method, params);
        loop {
            let message = self.next();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method} {params}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn send(&mut self, session: Option<&str>, method: &str, params: &Value) -> u64 {
        self.commands += 1;
        let mut message = json!({ "id": self.commands, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        write!(self.to, "{message}\0").unwrap();
        self.to.flush().unwrap();
        self.commands
    }

    fn next(&mut self) -> Value {
        self.from.recv_timeout(PATIENCE).expect("the browser answers")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // With it its own processes end.
        self.send(None, "Browser.close", &json!({}));
        if !super::processes::ends_within(self.child.id().cast_signed(), PATIENCE) {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

impl Tab<'_> {
    pub(crate) fn look(&mut self, look: Look) {
        let height = if look.width < 500 { 812 } else { 900 };
        let size = json!({
            "width": look.width, "height": height, "deviceScaleFactor": 1,
            "mobile": look.width < 500,
        });
        self.command("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if look.is_dark { "dark" } else { "light" };
        let media = json!({
            "media": if look.is_printed { "print" } else { "" },
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        self.command("Emulation.setEmulatedMedia", &media);
        let off = json!({ "value": !look.has_script });
        self.command("Emulation.setScriptExecutionDisabled", &off);
    }

    pub(crate) fn command(&mut self, method: &str, params: &Value) -> Value {
        let session = self.session.clone();
        let id = self.browser.send(Some(&session), method, params);
        loop {
            let message = self.browser.next();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method} {params}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    pub(crate) fn wait_for(&mut self, event: &str) {
        loop {
            let message = self.browser.next();
            self.note(&message);
            if message["method"] == event && message["sessionId"] == self.session.as_str() {
                return;
            }
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.said.push(params.to_string());
            }
            "Network.requestWillBeSent" => {
                let address = params["request"]["url"].as_str().unwrap_or_default();
                if !address.starts_with("data:") {
                    self.requests.push(address.to_string());
                }
            }
            _ => {}
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let found = self.command("Runtime.evaluate", &params);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// More rules than ours, where a file of axe-core is named.
    pub(crate) fn is_accessible(&mut self, at: &str) {
        if let Some(axe) = std::env::var_os("DATAPUMP_AXE") {
            self.value(&format!("{}; 0", fs::read_to_string(axe).unwrap()));
            assert_eq!(self.value(AXE), json!([]), "{at}: axe-core");
        }
    }

    /// Keeps a picture of the page, where a folder for them is named.
    pub(crate) fn keep_picture(&mut self, name: &str) {
        if let Some(folder) = std::env::var_os("DATAPUMP_PICTURES") {
            let file = Path::new(&folder).join(format!("{name}.png"));
            fs::write(file, self.picture(6000.0)).unwrap();
        }
    }

    /// A picture of the page from its top, at most so high, as PNG.
    fn picture(&mut self, height_max: f64) -> Vec<u8> {
        let size = self.command("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
        let number = |name: &str| size[name].as_f64().unwrap();
        let clip = json!({
            "x": 0, "y": 0, "width": number("width"), "scale": 1,
            "height": number("height").min(height_max),
        });
        let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.command("Page.captureScreenshot", &params);
        from_base64(picture["data"].as_str().unwrap())
    }
}

/// RFC 4648.
fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for letter in text.bytes().take_while(|letter| *letter != b'=') {
        let value = LETTERS.iter().position(|known| *known == letter).expect("base64");
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

/// What is wrong with a page, by kind, and what it is like.
///
/// - `counts`: series whose path has another number of points than it says, or than its table.
/// - `unnamed`: charts without a title, a description, a label of each axis or a table; boxes that
///   scroll and cannot be reached or have no name; a page without a language.
/// - `faint`: text with less contrast to what is behind it than WCAG 2 AA asks for.
/// - `outside`: elements that reach out of the page, or texts of a chart that reach out of it or
///   lie on each other.
const SEEN: &str = include_str!("seen.js");
const AXE: &str = "axe.run().then(found => found.violations.map(rule => \
                   [rule.id, rule.impact, rule.nodes.map(node => node.html.slice(0, 200))]))";
const FLAGS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
];
