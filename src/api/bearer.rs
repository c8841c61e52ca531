//! The credentials that sign requests: a header, which changes where a file or a credential plugin gives it.
//!
//! Owns what can be sent, and the search for another: a while after a file was read, or when [`plugin`](super::plugin) says that a
//! token will not be good much longer. It runs beside the requests, none of which waits. A search that finds none never
//! replaces one that did: the file may be back, or completely written, and the plugin better, by the next one.
//!
//! kube would send what it finds: a trailing newline, or nothing if the file is just being written, which the server takes for an
//! anonymous request. It would panic for a token that no header can carry.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::config::AuthInfo;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{
    access::AccessError,
    plugin::{PATIENCE, Plugin},
};
use crate::{clock, once::Once, time::Instant, words::one_line};

/// As in client-go: one minute, less ten seconds.
const FILE_IS_GOOD: Duration = Duration::from_secs(50);
/// From a search that found none to the next: plugins ask other people's servers.
const PAUSE: Duration = Duration::from_secs(10);
/// More than any server takes in a header.
const LONGEST: u64 = 1024 * 1024;

/// A header, and how long it is used without a search for another.
pub(super) type Found = (HeaderValue, Duration);

/// No HTTP header can carry the token.
const UNSENDABLE: &str =
    "the token is empty, or has a line break or another control character in it, so that no HTTP header can carry it";

/// Where a header comes from.
enum Source {
    /// The kubeconfig itself.
    Config,
    File(PathBuf),
    Plugin(Box<Plugin>),
}

/// Signs requests.
pub(super) struct Bearer {
    source: Source,
    last: Mutex<Last>,
    /// A search is under way. One that hangs is not followed by another.
    finding: AtomicBool,
}

/// The header that was found last.
#[derive(Debug)]
struct Last {
    /// Its `Debug` shows no token, because it is marked as sensitive.
    header: HeaderValue,
    /// When to look for another.
    until: Instant,
    /// The log says that none is found.
    told: Once,
}

impl Bearer {
    /// The signer of this user's requests from `now` on; `None` without credentials. `asked` is its plugin, and what that gave.
    ///
    /// # Errors
    /// The token cannot be read or sent.
    pub(super) fn of(auth: &AuthInfo, asked: Option<(Plugin, Found)>, now: Instant) -> Result<Option<Self>, AccessError> {
        let inline = auth.token.as_ref().map(|token| token.expose_secret());
        let fixed = if let Some(provider) = &auth.auth_provider {
            provider.config.get("id-token").and_then(|token| bearer(token))
        } else if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
            let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()));
            sensitive(format!("Basic {pair}"))
        } else if let Some(path) = &auth.token_file {
            return Self::of_file(path.into(), inline, now).map(Some);
        } else if let Some(token) = inline {
            bearer(token)
        } else {
            return Ok(asked.map(|(plugin, found)| Self::new(Source::Plugin(Box::new(plugin)), found, now)));
        };
        let header = fixed.ok_or_else(|| AccessError::unusable(UNSENDABLE))?;
        Ok(Some(Self::new(Source::Config, (header, Duration::MAX), now)))
    }

    /// Reads the file at `now`. While it has no token, `inline`, which is older, takes its place, as in client-go.
    fn of_file(path: PathBuf, inline: Option<&str>, now: Instant) -> Result<Self, AccessError> {
        let header = read(&path).or_else(|error| inline.and_then(bearer).ok_or(error))?;
        Ok(Self::new(Source::File(path), (header, FILE_IS_GOOD), now))
    }

    fn new(source: Source, (header, good): Found, now: Instant) -> Self {
        let last = Last { header, until: now + good, told: Once::NEW };
        Self { source, last: Mutex::new(last), finding: AtomicBool::new(false) }
    }

    /// Signs with the header found last, and looks for another, for later requests, if that was a while ago. In a runtime.
    pub(super) fn sign<B>(self: &Arc<Self>, mut request: Request<B>) -> Request<B> {
        let now = clock::boot();
        let (header, good) = self.header(now);
        request.headers_mut().insert(AUTHORIZATION, header);
        if !good && !self.finding.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            drop(tokio::spawn(async move {
                let found = this.source.find().await;
                this.found(found, clock::boot());
                this.finding.store(false, Ordering::Relaxed);
            }));
        }
        request
    }

    /// Returns true if the token found last is bound to a pod and has not expired at `wall` (microseconds).
    pub(super) fn is_good_token_of_a_pod(&self, wall: i64) -> bool {
        let (header, _) = self.header(clock::boot());
        let claims = header.to_str().ok().and_then(|header| BASE64_URL_SAFE_NO_PAD.decode(header.split('.').nth(1)?).ok());
        let claims: Value = claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default();
        claims.pointer("/kubernetes.io/pod").is_some() && claims["exp"].as_i64().is_some_and(|end| end > wall / 1_000_000)
    }

    /// The header found last, and whether it is good enough not to look for another at `now`.
    fn header(&self, now: Instant) -> (HeaderValue, bool) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.header.clone(), now < last.until)
    }

    fn found(&self, found: Result<Option<Found>, AccessError>, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(Some((header, good))) => *last = Last { header, until: now + good, told: Once::NEW },
            Ok(None) => last.until = now + PAUSE,
            Err(error) => {
                last.until = now + PAUSE;
                if last.told.say() {
                    tracing::warn!(error = one_line(&error), "credentials cannot be renewed; the old ones are used on");
                }
            }
        }
    }
}

impl Source {
    /// `None` if nothing is found that could be sent.
    async fn find(&self) -> Result<Option<Found>, AccessError> {
        match self {
            Self::Config => Ok(None),
            Self::File(path) => {
                let path = path.clone();
                // It may lie where a read hangs.
                match spawn_blocking(move || read(&path)).await {
                    Ok(read) => read.map(|header| Some((header, FILE_IS_GOOD))),
                    Err(_) => Ok(None),
                }
            }
            Self::Plugin(plugin) => plugin.ask(PATIENCE).await.map(|given| given.token.map(|header| (header, given.good))),
        }
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("last", &self.last).finish_non_exhaustive()
    }
}

/// `None` if it is empty, or no header can carry it.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    if token.is_empty() { None } else { sensitive(format!("Bearer {token}")) }
}

fn sensitive(value: String) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(value).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// As in client-go, without the whitespace around the token.
fn read(path: &Path) -> Result<HeaderValue, AccessError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(|error| AccessError::caused(format!("cannot read the token file {}", path.display()), error))?;
    bearer(text.trim()).ok_or_else(|| AccessError::unusable(UNSENDABLE))
}

#[cfg(test)]
mod tests {
    use std::process;

    use kube::config::ExecConfig;
    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;
    use crate::{config::Log, telemetry::log::captured};

    /// A file of this test process, removed at the end.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, content: &str) -> Self {
            let file = Self(std::env::temp_dir().join(format!("tenure-token-{}-{name}", process::id())));
            file.write(content);
            file
        }

        fn write(&self, content: impl AsRef<[u8]>) {
            fs::write(&self.0, content).unwrap();
        }

        fn remove(&self) {
            fs::remove_file(&self.0).unwrap();
        }

        fn open(&self, inline: Option<&str>) -> Bearer {
            Bearer::of_file(self.0.clone(), inline, START).unwrap()
        }

        /// The token at `now`, once a read that is due then is over.
        fn token(&self, token: &Bearer, now: Instant) -> HeaderValue {
            if !token.header(now).1 {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                token.found(runtime.block_on(token.source.find()), now);
            }
            token.header(now).0
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    const START: Instant = Instant::from_nanos(7);
    const MOMENT: Duration = Duration::from_nanos(1);

    #[test]
    fn a_token_is_read_again_after_fifty_seconds_and_not_before() {
        let file = File::new("again", "first");
        let token = file.open(None);
        file.write("second");

        assert_eq!(file.token(&token, (START + FILE_IS_GOOD).before(MOMENT)), "Bearer first");
        assert_eq!(file.token(&token, START + FILE_IS_GOOD), "Bearer second");

        file.write("third");
        assert_eq!(file.token(&token, (START + FILE_IS_GOOD + FILE_IS_GOOD).before(MOMENT)), "Bearer second");
        assert_eq!(file.token(&token, START + FILE_IS_GOOD + FILE_IS_GOOD), "Bearer third");
    }

    #[test]
    fn a_reading_without_a_token_keeps_the_last_one_until_there_is_another() {
        let file = File::new("keeps", "first");
        let token = file.open(None);
        for content in ["", " \n", "open\nsesame", "bell\u{7}"] {
            file.write(content);
            assert_eq!(file.token(&token, START + FILE_IS_GOOD), "Bearer first", "{content:?}");
        }
        file.remove();
        assert_eq!(file.token(&token, START + FILE_IS_GOOD + PAUSE), "Bearer first");

        file.write("second");

        assert_eq!(file.token(&token, START + FILE_IS_GOOD + PAUSE), "Bearer first");
        assert_eq!(file.token(&token, START + FILE_IS_GOOD + PAUSE + PAUSE), "Bearer second");
    }

    #[test]
    fn a_file_without_a_token_is_told_once_until_there_is_another() {
        let file = File::new("told", "first");
        let (token, mut now) = (file.open(None), START);
        let mut told = || {
            now += FILE_IS_GOOD;
            captured(&Log::default(), || drop(file.token(&token, now)))
        };
        let renewed = "WARN credentials cannot be renewed; the old ones are used on error=";
        file.write("open\nsesame");
        let malformed = told();
        assert!(malformed.contains(&format!("{renewed}{UNSENDABLE:?}")) && !malformed.contains("sesame"), "{malformed}");
        file.remove();
        assert_eq!(told(), "");
        file.write("second");
        assert_eq!(told(), "");
        file.remove();
        let missing = told();
        assert!(missing.contains(&format!("{renewed}\"cannot read the token file {}: ", file.0.display())), "{missing}");
    }

    #[test]
    fn what_stands_around_a_token_is_not_sent() {
        let file = File::new("around", "\n first\r\n");
        let token = file.open(None);
        assert_eq!(file.token(&token, START), "Bearer first");

        file.write("second\n");

        assert_eq!(file.token(&token, START + FILE_IS_GOOD), "Bearer second");
    }

    #[test]
    fn an_older_token_stands_in_until_the_file_has_one() {
        let file = File::new("older", "");
        for content in ["", "open\nsesame"] {
            file.write(content);
            assert_eq!(file.token(&file.open(Some("older")), START), "Bearer older", "{content:?}");
        }
        file.remove();
        let token = file.open(Some("older"));
        assert_eq!(file.token(&token, START + FILE_IS_GOOD), "Bearer older");

        file.write("newer");

        assert_eq!(file.token(&token, START + FILE_IS_GOOD + PAUSE), "Bearer newer");
        assert_eq!(file.token(&file.open(Some("older")), START), "Bearer newer");
    }

    #[test]
    fn a_file_without_a_token_and_one_that_cannot_be_read_are_errors() {
        let file = File::new("none", "");
        for content in ["", "\n", "open\nsesame"] {
            file.write(content);
            for inline in [None, Some(""), Some("a\nb")] {
                let error = Bearer::of_file(file.0.clone(), inline, START).unwrap_err();
                assert_eq!(error.to_string(), UNSENDABLE, "{content:?} {inline:?}");
            }
        }
        file.remove();

        let error = Bearer::of_file(file.0.clone(), None, START).unwrap_err();

        assert_eq!(error.to_string(), format!("cannot read the token file {}", file.0.display()));
    }

    #[tokio::test]
    async fn a_token_signs_a_request_and_is_shown_nowhere() {
        let file = File::new("secret", "sesame");
        let token = Arc::new(file.open(Some("sesame")));

        let signed = token.sign(Request::get("/x").header(AUTHORIZATION, "Bearer another").body(()).unwrap());

        let headers: Vec<_> = signed.headers().get_all(AUTHORIZATION).iter().collect();
        assert_eq!(headers, ["Bearer sesame"]);
        assert!(headers[0].is_sensitive());
        assert!(!format!("{token:?} {signed:?}").contains("sesame"), "{token:?} {signed:?}");
    }

    #[tokio::test]
    async fn a_plugin_that_gives_nothing_leaves_the_last_token_and_is_not_asked_again_at_once() {
        let runs = File::new("runs", "");
        for printed in [r"exit 1", r#"printf '{"status":{"token":"t\\n"}}'"#] {
            runs.write("");
            let script = format!("echo >> {}; {printed}", runs.0.display());
            let exec =
                ExecConfig { command: Some("/bin/sh".into()), args: Some(vec!["-c".into(), script]), ..ExecConfig::default() };
            let plugin = Plugin::of(&mut AuthInfo { exec: Some(exec), ..AuthInfo::default() }).unwrap().unwrap();
            let first = (HeaderValue::from_static("Bearer first"), Duration::ZERO);
            let token = Arc::new(Bearer::new(Source::Plugin(Box::new(plugin)), first, START));

            for _ in 0..10 {
                let signed = token.sign(Request::get("/x").body(()).unwrap());
                assert_eq!(signed.headers()[AUTHORIZATION], "Bearer first");
                while token.finding.load(Ordering::Relaxed) {
                    tokio::task::yield_now().await;
                }
            }

            assert_eq!(fs::read_to_string(&runs.0).unwrap(), "\n", "{printed}");
        }
    }

    #[tokio::test]
    async fn a_file_that_hangs_holds_up_no_request_and_is_read_once() {
        let file = File::new("hangs", "first");
        let token = Arc::new(file.open(None));
        file.remove();
        mkfifo(&file.0, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();

        for _ in 0..100 {
            let signed = token.sign(Request::get("/x").body(()).unwrap());
            assert_eq!(signed.headers()[AUTHORIZATION], "Bearer first");
        }

        assert!(token.finding.load(Ordering::Relaxed));
        tokio::task::yield_now().await;
        file.write("second");
        while token.finding.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        assert_eq!(token.header(clock::boot()).0, "Bearer second");
    }
}
