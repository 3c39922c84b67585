//! Tests of the page that `report` makes, in Chromium through WebDriver. If Chromium or its driver is missing, the tests
//! report that they did not run, or fail with `STRIDE_TEST_BROWSER=1`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use serde_json::{Value, json};
use sideway_test_names::Folder;
use sideway_tests::requirements::may_not_run;

use super::{ends, run};

/// If this variable is 1, tests fail on a machine without the browser.
const REQUIRED: &str = "STRIDE_TEST_BROWSER";

/// A browser with one window. Dropping it ends the browser and its driver.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser. If there is none, reports that the test did not run, and the test ends.
    fn start(folder: &Folder) -> Option<Self> {
        let child = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let is_there = Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success());
        let mut driver = match child {
            Ok(driver) if is_there => driver,
            child => {
                child.into_iter().for_each(|mut driver| drop(driver.kill().and_then(|()| driver.wait())));
                let why = "needs the programs chromium and chromedriver";
                assert!(std::env::var(REQUIRED).as_deref() != Ok("1"), "{REQUIRED}=1, but the test {why}");
                may_not_run(&format!("{why} ({REQUIRED}=1 makes this a failure)"));
                return None;
            }
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .find_map(|line| line.unwrap().rsplit_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        let mut browser = Self { driver, port: port.unwrap(), session: String::new() };
        // As root and in containers, Chromium starts only without its sandbox.
        let data = format!("--user-data-dir={}", folder.join("chromium").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1300,1000",
            &data,
        ];
        let options = json!({"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments}});
        let made = browser.call("POST", "", &json!({"capabilities": {"alwaysMatch": options}}));
        browser.session = format!("/{}", made["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Sends a request to the driver, and returns the value of its response.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let (session, length) = (&self.session, body.len());
        let head = format!("{method} /session{session}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        // The driver may keep the connection open, so the length ends the response.
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{path}");
            if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).unwrap();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(value["value"].get("error").is_none(), "{path}: {value}");
        value["value"].clone()
    }

    fn open(&self, page: &Path) {
        self.call("POST", "/url", &json!({"url": format!("file://{}", page.display())}));
    }

    /// Returns the value of an expression in the page.
    fn value(&self, expression: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({"script": format!("return {expression}"), "args": []}))
    }

    /// Clicks on the first element that this selector selects, with the pointer.
    fn click(&self, selector: &str) {
        let found = self.call("POST", "/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.call("POST", &format!("/element/{id}/click"), &json!({}));
    }

    fn prefers(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.call("POST", "/goog/cdp/execute", &command);
    }

    /// Writes a picture of the window to the folder for files of tests.
    fn picture(&self, name: &str) {
        let text = self.call("GET", "/screenshot", &Value::Null);
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"));
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), bytes).unwrap();
    }

    /// Checks that the page wrote nothing to the console.
    #[track_caller]
    fn is_silent(&self) {
        assert_eq!(self.call("POST", "/se/log", &json!({"type": "browser"})), json!([]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", "", &json!({}));
        }
        let _ = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

/// Returns the path of a mesh in JSON.
fn mesh() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/schema/mesh-example.json")
}

const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[test]
fn click_on_a_cell_shows_the_pair() {
    let folder = Folder::new();
    let Some(browser) = Browser::start(&folder) else { return };
    let page = folder.join("page.html");
    ends(&run(&format!("report {} -o {}", mesh(), page.display())), 0);
    browser.open(&page);
    assert_eq!(browser.value("document.querySelector('.pair').hidden"), true);
    browser.click(".map a[href='#p0-1-4']");
    assert_eq!(browser.value("document.querySelector('.pair h3').textContent"), "node2 → node5");
    let rows = browser.value("[...document.querySelectorAll('.pair tbody tr')].map((row) => row.cells[0].textContent)");
    assert!(rows.as_array().unwrap().iter().any(|mode| mode == "busy"), "{rows}");
    assert_eq!(browser.value("document.querySelector('.pair').hidden"), false);
    browser.picture("mesh-light.png");
    browser.prefers("dark");
    browser.click(".map a[href='#p0-4-1']");
    let text = browser.value("document.querySelector('.pair').textContent");
    assert!(text.as_str().unwrap().contains("✘ rank 4 (node5) left the mesh: it disconnected"), "{text}");
    browser.picture("mesh-dark.png");
    let visible = "[...document.querySelectorAll('.mesh .choice > section')].filter((part) => !part.hidden).length";
    assert_eq!(browser.value(visible), 1);
    browser.is_silent();
}

#[test]
fn theme_follows_the_system_and_the_button() {
    let folder = Folder::new();
    let Some(browser) = Browser::start(&folder) else { return };
    let [json, page] = ["run.json", "page.html"].map(|name| folder.join(name));
    let words = format!("send lat -d soft0 --loopback -n 200 -s 2,64,4K --json {}", json.display());
    ends(&run(&words), 0);
    ends(&run(&format!("report {} -o {}", json.display(), page.display())), 0);
    browser.open(&page);
    let light = browser.value(BACKGROUND);
    browser.prefers("dark");
    let dark = browser.value(BACKGROUND);
    assert_ne!(light, dark);
    browser.open(&page);
    browser.click("#theme");
    assert_eq!(browser.value(BACKGROUND), light);
    browser.click("#theme");
    assert_eq!(browser.value(BACKGROUND), dark);
    // The point under the pointer is described.
    let circle = "document.querySelector('.chart circle').getBoundingClientRect()";
    let [x, y] = ["x", "y"].map(|axis| browser.value(&format!("Math.round({circle}.{axis})")));
    let actions = json!([{"type": "pointerMove", "duration": 0, "x": x, "y": y}]);
    browser.call("POST", "/actions", &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]}));
    let tip = browser.value("document.getElementById('tip').textContent");
    assert!(tip.as_str().unwrap().starts_with("run median\n2 B: "), "{tip}");
    browser.picture("latency-dark.png");
    browser.is_silent();
}

#[test]
fn hostile_run_does_not_run_a_script() {
    let folder = Folder::new();
    let Some(browser) = Browser::start(&folder) else { return };
    let hostile = "</title></style></script>\"'><img src=x onerror='window.hit=1'><script>window.hit=1</script>";
    let text = serde_json::to_string(hostile).unwrap();
    let parts = ["\"node5\"", "\"mlx5_0\"", "\"slurm\"", "\"it disconnected\"", "\"certain\"", "\"--min-gbps\""];
    let text = parts.iter().fold(fs::read_to_string(mesh()).unwrap(), |all, part| all.replace(part, &text));
    let [json, page] = ["<img src=x onerror=window.hit=1>.json", "page.html"].map(|name| folder.join(name));
    fs::write(&json, text).unwrap();
    let mut command = super::program("report");
    ends(&command.args([&json, Path::new("-o"), &page]).output().unwrap(), 0);
    browser.open(&page);
    browser.click(".map a[href='#p0-1-4']");
    assert!(browser.value("document.querySelector('.pair h3').textContent").as_str().unwrap().contains("<img src=x"));
    assert_eq!(
        browser.value("[window.hit ?? null, document.images.length, document.scripts.length]"),
        json!([null, 0, 1])
    );
    browser.is_silent();
    // Even markup that was not escaped would not run: the policy of the page forbids it.
    let attack = "(document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.hit=1\" id=\"attack\">x</p>'), \
                  document.getElementById('attack').click(), window.hit ?? null)";
    assert_eq!(browser.value(attack), Value::Null);
}
