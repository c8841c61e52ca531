//! A scripted HTTP server for tests: it answers request by request, on whatever connections they come.

use std::{collections::VecDeque, sync::Arc, sync::Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

use crate::api::{Cluster, Dialer};

/// The answer of the server to one request.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    /// These bytes, then the connection stays open.
    Bytes(String),
    /// These bytes, then the connection is closed.
    Last(String),
    /// These bytes again and again.
    Endless(String),
    /// Nothing at all.
    Silence,
}

/// The requests that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of the connection, from 0.
    pub(crate) connection: usize,
    /// Method and path with query.
    pub(crate) line: String,
    /// The whole head, in lower case.
    pub(crate) head: String,
    /// The whole body.
    pub(crate) body: String,
}

type Answering = Arc<Mutex<dyn FnMut(&Seen) -> Say + Send>>;

/// The server, which ends when this is dropped.
pub(crate) struct Stub {
    /// Where it listens.
    pub(crate) url: String,
    /// Answers, one for each request.
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
    task: JoinHandle<()>,
}

impl Stub {
    /// Answers with these in order, and with silence after the last.
    pub(crate) async fn start(script: impl IntoIterator<Item = Say>) -> Self {
        let mut script: VecDeque<Say> = script.into_iter().collect();
        Self::answering(move |_| script.pop_front().unwrap_or(Say::Silence)).await
    }

    /// Answers each request with what `answer` returns.
    pub(crate) async fn answering(answer: impl FnMut(&Seen) -> Say + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer: Answering = Arc::new(Mutex::new(answer));
        let (tell, seen) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, connection, Arc::clone(&answer), tell.clone()));
            }
        });
        Self { url, seen, task }
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::without_credentials(&self.url)
    }

    pub(crate) fn dialer(&self) -> Dialer {
        self.cluster().dialer_now(std::time::Duration::from_secs(5))
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A whole reply with this status and JSON body.
pub(crate) fn json(status: u16, body: &str) -> Say {
    with_headers(status, "", body)
}

/// The same with more headers, each ended by CRLF.
pub(crate) fn with_headers(status: u16, headers: &str, body: &str) -> Say {
    let length = body.len();
    Say::Bytes(format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    ))
}

async fn serve(mut stream: TcpStream, connection: usize, answer: Answering, tell: mpsc::UnboundedSender<Seen>) {
    while let Some(seen) = receive(&mut stream, connection).await {
        let say = (answer.lock().unwrap())(&seen);
        let _ = tell.send(seen);
        match say {
            Say::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Say::Last(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                return;
            }
            Say::Endless(bytes) => while stream.write_all(bytes.repeat(1000).as_bytes()).await.is_ok() {},
            Say::Silence => std::future::pending().await,
        }
    }
}

async fn receive(stream: &mut TcpStream, connection: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let line = text.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
                return Some(Seen { connection, line, head, body: body.to_owned() });
            }
        }
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&chunk[..length]);
    }
}
