//! Bearer tokens, and the file that may hold one.
//!
//! Owns what can be sent as a token, and every read of such a file. A read that finds none never replaces one that did: the file
//! may be back, or completely written, by the next request.
//!
//! kube could read it too, but sends what it finds: a trailing newline, or nothing if the file is just being written, which the
//! server takes for an anonymous request.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::client::AuthError;
use tokio::task::spawn_blocking;

use crate::{clock, time::Instant};

/// As in client-go: one minute, less ten seconds.
const GOOD: Duration = Duration::from_secs(50);
/// More than any server takes in a header.
const LONGEST: u64 = 1024 * 1024;

/// A file whose token signs requests.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    last: Mutex<Last>,
    /// A read is under way. One that hangs is not followed by another.
    reading: AtomicBool,
}

/// The token that was found last.
#[derive(Debug)]
struct Last {
    /// Its `Debug` shows no token, because it is marked as sensitive.
    header: HeaderValue,
    at: Instant,
}

impl TokenFile {
    /// Reads it at `now`. While it has no token, `inline`, which is older, takes its place; `None` if neither has one.
    ///
    /// # Errors
    /// It cannot be read, and `inline` cannot take its place.
    pub(super) fn open(path: PathBuf, inline: Option<&str>, now: Instant) -> Result<Option<Self>, AuthError> {
        let header = match (read(&path), inline.and_then(bearer)) {
            (Ok(Some(header)), _) | (Ok(None) | Err(_), Some(header)) => header,
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(AuthError::ReadTokenFile(error, path)),
        };
        Ok(Some(Self { path, last: Mutex::new(Last { header, at: now }), reading: AtomicBool::new(false) }))
    }

    /// Signs with the token found last, and has the file read again, for later requests, if that was a while ago: the file may lie
    /// where a read hangs. In a runtime of tokio.
    pub(super) fn sign<B>(self: &Arc<Self>, mut request: Request<B>) -> Request<B> {
        let now = clock::boot();
        let (header, good) = self.header(now);
        request.headers_mut().insert(AUTHORIZATION, header);
        if !good && !self.reading.swap(true, Ordering::Relaxed) {
            let file = Arc::clone(self);
            drop(spawn_blocking(move || {
                file.read_again(now);
                file.reading.store(false, Ordering::Relaxed);
            }));
        }
        request
    }

    /// The token found last, and whether it is good enough not to look for another at `now`.
    fn header(&self, now: Instant) -> (HeaderValue, bool) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.header.clone(), now.since(last.at) < GOOD)
    }

    fn read_again(&self, now: Instant) {
        if let Ok(Some(header)) = read(&self.path) {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Last { header, at: now };
        }
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
    use std::process;

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

        fn open(&self, inline: Option<&str>) -> TokenFile {
            TokenFile::open(self.0.clone(), inline, START).unwrap().expect("a token")
        }

        /// The token at `now`, once a read that is due then is over.
        fn token(file: &TokenFile, now: Instant) -> HeaderValue {
            if !file.header(now).1 {
                file.read_again(now);
            }
            file.header(now).0
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

        assert_eq!(File::token(&token, (START + GOOD).before(MOMENT)), "Bearer first");
        assert_eq!(File::token(&token, START + GOOD), "Bearer second");

        file.write("third");
        assert_eq!(File::token(&token, (START + GOOD + GOOD).before(MOMENT)), "Bearer second");
        assert_eq!(File::token(&token, START + GOOD + GOOD), "Bearer third");
    }

    #[test]
    fn a_reading_without_a_token_keeps_the_last_one_until_there_is_another() {
        let file = File::new("keeps", "first");
        let token = file.open(None);
        for content in ["", " \n", "open\nsesame", "bell\u{7}"] {
            file.write(content);
            assert_eq!(File::token(&token, START + GOOD), "Bearer first", "{content:?}");
        }
        file.write([0xff, 0xfe]);
        assert_eq!(File::token(&token, START + GOOD), "Bearer first");
        file.remove();
        assert_eq!(File::token(&token, START + GOOD), "Bearer first");

        file.write("second");

        assert_eq!(File::token(&token, START + GOOD + MOMENT), "Bearer second");
    }

    #[test]
    fn what_stands_around_a_token_is_not_sent() {
        let file = File::new("around", "\n first\r\n");
        let token = file.open(None);
        assert_eq!(File::token(&token, START), "Bearer first");

        file.write("second\n");

        assert_eq!(File::token(&token, START + GOOD), "Bearer second");
    }

    #[test]
    fn an_older_token_stands_in_until_the_file_has_one() {
        let file = File::new("older", "");
        for content in ["", "open\nsesame"] {
            file.write(content);
            assert_eq!(File::token(&file.open(Some("older")), START), "Bearer older", "{content:?}");
        }
        file.remove();
        let token = file.open(Some("older"));
        assert_eq!(File::token(&token, START + GOOD), "Bearer older");

        file.write("newer");

        assert_eq!(File::token(&token, START + GOOD), "Bearer newer");
        assert_eq!(File::token(&file.open(Some("older")), START), "Bearer newer");
    }

    #[test]
    fn a_file_without_a_token_is_none_and_one_that_cannot_be_read_is_an_error() {
        let file = File::new("none", "");
        for content in ["", "\n", "open\nsesame"] {
            file.write(content);
            for inline in [None, Some(""), Some("a\nb")] {
                assert!(TokenFile::open(file.0.clone(), inline, START).unwrap().is_none(), "{content:?} {inline:?}");
            }
        }
        file.remove();

        let error = TokenFile::open(file.0.clone(), None, START).unwrap_err();

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
    async fn a_file_that_hangs_holds_up_no_request_and_is_read_once() {
        let file = File::new("hangs", "first");
        let token = Arc::new(file.open(None));
        file.remove();
        mkfifo(&file.0, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();

        for _ in 0..100 {
            let signed = token.sign(Request::get("/x").body(()).unwrap());
            assert_eq!(signed.headers()[AUTHORIZATION], "Bearer first");
        }

        assert!(token.reading.load(Ordering::Relaxed));
        file.write("second");
        while token.reading.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        assert_eq!(token.header(clock::boot()).0, "Bearer second");
    }
}
