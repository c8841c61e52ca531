//! Bearer tokens that change: of a file, and of a credential plugin.
//!
//! Owns what can be sent as a token, and when it is found anew: beside the requests, none of which waits. A search that finds none
//! never replaces one that did: the file may be back, or completely written, and the plugin better, by the next one.
//!
//! kube could read the file too, but sends what it finds: a trailing newline, or nothing if the file is just being written, which the
//! server takes for an anonymous request. It runs the plugin, but within a request, whose deadline would discard what a slow one gives.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use kube::client::{AuthError, Body, middleware::AuthLayer};
use tokio::{runtime::Handle, task::spawn_blocking};
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn, util::BoxCloneSyncService};

use super::plugin::{PATIENCE, Plugin, PluginError};
use crate::{clock, time::Instant, words::one_line};

/// As in client-go: one minute, less ten seconds.
const FILE_IS_GOOD: Duration = Duration::from_secs(50);
/// How often kube is asked for the plugin's token. It has a newer one from the plugin a minute before the old one ends.
const PLUGIN_IS_GOOD: Duration = Duration::from_secs(5);
/// From a search that found none to the next: plugins ask other people's servers.
const PAUSE: Duration = Duration::from_secs(10);
/// More than any server takes in a header.
const LONGEST: u64 = 1024 * 1024;

/// `None` if nothing is found that could be sent.
type Found = Result<Option<HeaderValue>, PluginError>;
type Finding = Pin<Box<dyn Future<Output = Found> + Send>>;

/// A token that signs requests.
pub(super) struct Bearer {
    find: Box<dyn Fn() -> Finding + Send + Sync>,
    /// How long it is used without a search for another.
    good: Duration,
    last: Mutex<Last>,
    /// A search is under way. One that hangs is not followed by another.
    finding: AtomicBool,
}

/// The token that was found last.
#[derive(Debug)]
struct Last {
    /// Its `Debug` shows no token, because it is marked as sensitive.
    header: HeaderValue,
    /// When to look for another.
    until: Instant,
    /// The log says that none is found.
    told: bool,
}

impl Bearer {
    /// Reads the file at `now`. While it has no token, `inline`, which is older, takes its place; `None` if neither has one.
    ///
    /// # Errors
    /// It cannot be read, and `inline` cannot take its place.
    pub(super) fn of_file(path: PathBuf, inline: Option<&str>, now: Instant) -> Result<Option<Self>, AuthError> {
        let header = match (read(&path), inline.and_then(bearer)) {
            (Ok(Some(header)), _) | (Ok(None) | Err(_), Some(header)) => header,
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(AuthError::ReadTokenFile(error, path)),
        };
        let find = move || -> Finding {
            let path = path.clone();
            // It may lie where a read hangs.
            Box::pin(async move { Ok(spawn_blocking(move || read(&path).ok().flatten()).await.ok().flatten()) })
        };
        Ok(Some(Self::new(find, FILE_IS_GOOD, header, now)))
    }

    /// Asks kube for the token that it has of a plugin. On a thread for what blocks, in a runtime.
    ///
    /// # Errors
    /// It cannot be sent, or is empty, which would not be refused, but make this replica anonymous.
    pub(super) fn of_plugin(layer: &AuthLayer, plugin: Plugin, now: Instant) -> Result<Self, PluginError> {
        let signed = service_fn(|request: Request<Body>| {
            std::future::ready(Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned())))
        });
        let kube = BoxCloneSyncService::new(layer.layer(signed));
        let ask = move || {
            let (kube, plugin) = (kube.clone(), plugin.clone());
            async move {
                let answer = tokio::time::timeout(PATIENCE, kube.oneshot(Request::new(Body::empty())));
                let header = answer.await.map_err(|_| plugin.hung(PATIENCE))?.map_err(|error| match error.downcast() {
                    Ok(error) => plugin.failure(*error),
                    Err(_) => plugin.unusable(),
                })?;
                header.into_body().filter(|header| header.len() > "Bearer ".len()).ok_or_else(|| plugin.unusable())
            }
        };
        let first = Handle::current().block_on(ask())?;
        let find = move || -> Finding {
            let asked = ask();
            Box::pin(async move { asked.await.map(Some) })
        };
        Ok(Self::new(find, PLUGIN_IS_GOOD, first, now))
    }

    fn new(find: impl Fn() -> Finding + Send + Sync + 'static, good: Duration, header: HeaderValue, now: Instant) -> Self {
        let last = Last { header, until: now + good, told: false };
        Self { find: Box::new(find), good, last: Mutex::new(last), finding: AtomicBool::new(false) }
    }

    /// Signs with the token found last, and looks for another, for later requests, if that was a while ago. In a runtime.
    pub(super) fn sign<B>(self: &Arc<Self>, mut request: Request<B>) -> Request<B> {
        let now = clock::boot();
        let (header, good) = self.header(now);
        request.headers_mut().insert(AUTHORIZATION, header);
        if !good && !self.finding.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            drop(tokio::spawn(async move {
                let found = (this.find)().await;
                this.found(found, clock::boot());
                this.finding.store(false, Ordering::Relaxed);
            }));
        }
        request
    }

    /// The token found last, and whether it is good enough not to look for another at `now`.
    fn header(&self, now: Instant) -> (HeaderValue, bool) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.header.clone(), now < last.until)
    }

    fn found(&self, found: Found, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(Some(header)) => *last = Last { header, until: now + self.good, told: false },
            Ok(None) => last.until = now + PAUSE,
            Err(error) => {
                last.until = now + PAUSE;
                if !std::mem::replace(&mut last.told, true) {
                    tracing::warn!(error = one_line(&error), "credentials cannot be renewed; the old ones are used on");
                }
            }
        }
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Whether it can be a header's value; any other makes kube panic.
pub(super) fn is_sendable(token: &str) -> bool {
    bearer(token).is_some()
}

fn bearer(token: &str) -> Option<HeaderValue> {
    if token.is_empty() {
        return None;
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// As in client-go, without the whitespace around the token; `None` if that cannot be sent.
fn read(path: &Path) -> io::Result<Option<HeaderValue>> {
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(bearer(text.trim()))
}

#[cfg(test)]
mod tests {
    use std::{process, sync::atomic::AtomicUsize};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

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
            Bearer::of_file(self.0.clone(), inline, START).unwrap().expect("a token")
        }

        /// The token at `now`, once a read that is due then is over.
        fn token(&self, token: &Bearer, now: Instant) -> HeaderValue {
            if !token.header(now).1 {
                token.found(Ok(read(&self.0).ok().flatten()), now);
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
    fn a_file_without_a_token_is_none_and_one_that_cannot_be_read_is_an_error() {
        let file = File::new("none", "");
        for content in ["", "\n", "open\nsesame"] {
            file.write(content);
            for inline in [None, Some(""), Some("a\nb")] {
                assert!(Bearer::of_file(file.0.clone(), inline, START).unwrap().is_none(), "{content:?} {inline:?}");
            }
        }
        file.remove();

        let error = Bearer::of_file(file.0.clone(), None, START).unwrap_err();

        assert!(matches!(&error, AuthError::ReadTokenFile(_, path) if *path == file.0), "{error:?}");
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
    async fn a_search_that_fails_leaves_the_last_token_and_is_not_repeated_at_once() {
        let searches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&searches);
        let fails = move || -> Finding {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Err(PluginError::NoCommand)))
        };
        let token = Arc::new(Bearer::new(fails, Duration::ZERO, HeaderValue::from_static("Bearer first"), START));

        for _ in 0..10 {
            let signed = token.sign(Request::get("/x").body(()).unwrap());
            assert_eq!(signed.headers()[AUTHORIZATION], "Bearer first");
            tokio::task::yield_now().await;
        }

        assert_eq!(searches.load(Ordering::Relaxed), 1);
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
