//! A real browser without a window: Debian's Chromium, driven through a pipe (the DevTools
//! protocol). It reaches no other host: every name is answered with "not found".

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

    /// A picture of the page from its top, at most so high, as PNG.
    pub(crate) fn picture(&mut self, height_max: f64) -> Vec<u8> {
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
