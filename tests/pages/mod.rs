//! The page of a replica as a person sees it, in a real Chromium that chromedriver steers (W3C WebDriver).

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{Case, Kept, PATIENCE, Stage, cases, not_run, within};

const DEBIAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/debian");
/// A first start unpacks it.
const START: Duration = Duration::from_secs(300);

pub(crate) fn all() -> Vec<Case> {
    cases![
        the_page_of_a_standby_follows_a_failover_in_a_real_browser,
        the_page_of_a_replica_that_never_led_shows_whose_terms_it_saw_in_a_real_browser,
        the_page_of_a_standby_without_a_leader_says_when_the_lease_is_free_in_a_real_browser,
    ]
}

async fn the_page_of_a_standby_follows_a_failover_in_a_real_browser(stage: Stage) {
    let Some(browser) = Browser::start(&stage).await else { return };
    let (leader, _) = stage.lead(stage.prepare("a").await).await;
    let (address, _kept) = stage.free_address();
    let standby = stage.prepare("b").await.set("http.listen", address.to_string()).start();
    standby.said("another replica holds the Lease").await;

    browser.open(&format!("http://{address}/")).await;
    browser.until("document.body.className === 'standby'").await;
    browser.until(&leads("a")).await;
    browser.until("document.getElementById('left').hidden").await;
    // What it keeps shows that this very page saw all that follows.
    browser.tell("window.sameness = 1").await;

    leader.signal(Signal::SIGTERM).await;
    stage.witness.start("b", 0).await;

    browser.until("document.body.className === 'leader'").await;
    browser.until(&leads("b")).await;
    browser.until("document.querySelector('#transitions tr').cells[2].textContent === 'released'").await;
    browser.until("document.getElementById('margin').value > 0 && !document.getElementById('left').hidden").await;
    // The margin runs down, and grows when the Lease is renewed.
    browser.tell("window.last = document.getElementById('margin').value; window.fell = window.rose = false").await;
    let watch = "window.now = document.getElementById('margin').value, window.fell ||= now < last, window.rose ||= now > last, \
                 window.last = now, fell && rose";
    browser.until(watch).await;
    browser.until("window.sameness === 1").await;
    browser.take_picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.webp")).await;
    for (scheme, is_dark) in [("dark", true), ("light", false)] {
        browser.prefer(scheme).await;
        // The corner is the page's own colour, and the brightest and the darkest pixel are those of its text.
        let [corner, least, most] = browser.brightness().await;
        assert_eq!((corner < 64, most - least > 128), (is_dark, true), "{scheme}: {corner} of {least} to {most}");
    }

    standby.signal(Signal::SIGKILL).await;
    browser.until("!document.getElementById('gone').hidden").await;
}

async fn the_page_of_a_replica_that_never_led_shows_whose_terms_it_saw_in_a_real_browser(stage: Stage) {
    let Some(browser) = Browser::start(&stage).await else { return };
    let (leader, _) = stage.lead(stage.prepare("a").await).await;
    let next = stage.start("b").await;
    let (address, _kept) = stage.free_address();
    let onlooker = stage.prepare("c").await.set("http.listen", address.to_string()).set("lease.priority", -3).start();
    onlooker.said("another replica holds the Lease").await;
    next.said("another replica holds the Lease").await;

    browser.open(&format!("http://{address}/")).await;
    let first = since(&stage).await;
    browser.until(&format!("({}) && {}", leads("a"), is_since(&first))).await;
    browser.until("document.querySelectorAll('#timeline div').length === 1").await;
    browser.tell("window.sameness = 1").await;

    leader.signal(Signal::SIGTERM).await;
    stage.witness.start("b", 0).await;

    let second = since(&stage).await;
    browser.until(&format!("document.body.className === 'standby' && ({}) && {}", leads("b"), is_since(&second))).await;
    let [last, before] = ["b", "a"].map(|holder| format!("cells[0].textContent === '{holder}'"));
    browser.until("window.rows = document.getElementById('terms').rows, rows.length === 2").await;
    browser
        .until(&format!("rows[0].{last} && rows[0].cells[2].textContent === '{second}' && !rows[0].cells[3].textContent"))
        .await;
    browser
        .until(&format!("rows[1].{before} && rows[1].cells[2].textContent === '{first}' && rows[1].cells[3].textContent"))
        .await;
    browser
        .until("rows[1].cells[4].textContent === 'released' && rows[0].cells[1].textContent - rows[1].cells[1].textContent === 1")
        .await;
    browser.until("window.bars = [...document.querySelectorAll('#timeline div')].map(bar => bar.getBoundingClientRect())").await;
    browser.until("bars.length === 2 && bars[1].left < bars[0].left && bars[1].right <= bars[0].left + 2").await;
    browser.until("document.getElementById('workload').textContent === 'does not run' && window.sameness === 1").await;

    next.signal(Signal::SIGKILL).await;
    stage.witness.start("c", 0).await;

    browser
        .until(&format!("document.body.className === 'leader' && ({}) && {}", leads("c"), is_since(&since(&stage).await)))
        .await;
    browser.until("window.rows = document.getElementById('terms').rows, rows.length === 3").await;
    browser.until(&format!("rows[1].{last} && rows[1].cells[4].textContent === 'expired'")).await;
    browser.until("document.getElementById('workload').textContent === 'leader'").await;
}

async fn the_page_of_a_standby_without_a_leader_says_when_the_lease_is_free_in_a_real_browser(stage: Stage) {
    let Some(browser) = Browser::start(&stage).await else { return };
    let (leader, _) = stage.lead(stage.prepare("a").await.unhurried()).await;
    let (address, _kept) = stage.free_address();
    let standby = stage.prepare("b").await.unhurried().set("http.listen", address.to_string()).start();
    standby.said("another replica holds the Lease").await;
    browser.open(&format!("http://{address}/")).await;
    let seen = "document.getElementById('seen').textContent";
    let renewed = ", last renewal seen [0-9]+[.][0-9] s ago, free in [0-9]+ s unless renewed";

    leader.signal(Signal::SIGKILL).await;
    leader.exit().await;

    // No renewal comes, and the time that is left runs down.
    browser.until(&format!("/^, last renewal seen [3-9][.][0-9] s ago, free in 1[0-9] s unless renewed$/.test({seen})")).await;
    standby.proxy.refuse().await;
    browser.until(&format!("/^{renewed}; the API server does not answer$/.test({seen})")).await;
    standby.proxy.mend().await;
    stage.witness.start("b", 0).await;
    browser.until(&format!("document.body.className === 'leader' && {seen} === ''")).await;
}

/// acquireTime as the page shows it.
async fn since(stage: &Stage) -> String {
    let lease = stage.lease.read().await.expect("a Lease");
    let time: jiff::Timestamp = lease["spec"]["acquireTime"].as_str().expect("a time").parse().expect("a time");
    format!("{time:.3}")
}

/// The page shows the base of the identity, and the whole of it as its title.
fn leads(holder: &str) -> String {
    format!(
        "window.holder = document.getElementById('holder'), holder.textContent === '{holder}' && /^{holder}_[0-9a-f]{{32}}$/.test(holder.title)"
    )
}

fn is_since(time: &str) -> String {
    format!("document.getElementById('since').textContent === 'since {time}'")
}

/// Ends when dropped, and all that it started with it.
struct Browser<'a> {
    stage: &'a Stage,
    driver: SocketAddr,
    /// The path of the session.
    session: String,
    process: Kept,
}

impl<'a> Browser<'a> {
    /// None, and said so, where it cannot be had.
    async fn start(stage: &'a Stage) -> Option<Self> {
        let driver = stage.free_address().0;
        let directory = stage.directory();
        let log = fs::File::create(directory.join("chromium.log")).expect("a log");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", DEBIAN]);
        command.args(["chromium-headless-shell,chromium-driver", "chromedriver"]);
        command.arg(format!("--port={}", driver.port())).current_dir(directory).env("TMPDIR", directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Kept(command.spawn().expect("setpriv"));
        let mut browser = Self { stage, driver, session: "/session".into(), process };
        if !browser.listens().await {
            not_run("the page in a real browser", fs::read_to_string(directory.join("chromium.log")).expect("a log").trim());
            return None;
        }
        let cache = Command::new("sh").args(["-c", "printf %s \"${XDG_CACHE_HOME:-$HOME/.cache}\""]).output().expect("a shell");
        let cache = String::from_utf8(cache.stdout).expect("a path");
        let options = json!({
            "binary": format!("{cache}/tenure/debian/chromium-headless-shell/usr/lib/chromium/chromium-headless-shell"),
            "args": ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        });
        let session = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let answer = browser.post("", &session).await;
        browser.session = format!("/session/{}", answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")));
        Some(browser)
    }

    async fn listens(&mut self) -> bool {
        within(START, "chromedriver", async {
            loop {
                if tokio::net::TcpStream::connect(self.driver).await.is_ok() {
                    return true;
                }
                if self.process.try_wait().expect("a child").is_some() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    }

    /// Asks the driver for something of the session.
    async fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let answer = self.stage.ask(self.driver, "POST", &path, &body.to_string()).await;
        let body = answer.split_once("\r\n\r\n").expect("a head").1;
        serde_json::from_str::<Value>(body).unwrap_or_else(|error| panic!("{error}: {answer}"))["value"].take()
    }

    async fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// A command of the Chrome DevTools Protocol.
    async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": params })).await
    }

    /// Of a picture of the page: the brightness of the corner, the least and the most, from 0 to 255.
    async fn brightness(&self) -> [u64; 3] {
        let picture = self.devtools("Page.captureScreenshot", json!({ "format": "png" })).await["data"].take();
        let script = "const [data, done] = arguments;
            createImageBitmap(new Blob([Uint8Array.from(atob(data), c => c.charCodeAt(0))])).then(picture => {
                const canvas = new OffscreenCanvas(picture.width, picture.height), drawn = canvas.getContext('2d');
                drawn.drawImage(picture, 0, 0);
                const bytes = drawn.getImageData(0, 0, picture.width, picture.height).data;
                let least = 255, most = 0;
                for (let at = 0; at < bytes.length; at += 4) { least = Math.min(least, bytes[at + 1]); most = Math.max(most, bytes[at + 1]); }
                done([bytes[1], least, most]);
            })";
        let order = json!({ "script": script, "args": [picture] });
        let answer = self.post("/execute/async", &order).await;
        serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Writes the page as a picture, as WebP.
    async fn take_picture(&self, file: &Path) {
        self.post("/window/rect", &json!({ "width": 1060, "height": 520 })).await;
        let answer = self.devtools("Page.captureScreenshot", json!({ "format": "webp", "quality": 35 })).await;
        let picture = STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("base64");
        fs::write(file, picture).expect("a file");
    }

    async fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).await;
    }

    async fn tell(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// Waits until this holds in the page.
    async fn until(&self, condition: &str) {
        within(PATIENCE, condition, async {
            while self.tell(&format!("return !!({condition})")).await != true {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    }
}
