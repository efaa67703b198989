//! An engine that misbehaves on purpose, or answers what a test tells it to: HTTP/1.1 by hand on a unix socket.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What the engine does with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A whole answer of JSON with this status.
    Json(u16, String),
    /// These bytes and the end, whatever they are.
    Raw(Vec<u8>),
    /// These bytes, and then nothing more, with the connection open.
    Hang(Vec<u8>),
    /// Another reply, later.
    After(Duration, Box<Reply>),
}

impl Reply {
    pub fn ok(body: impl ToString) -> Self {
        Self::Json(200, body.to_string())
    }

    /// The promise of 1000 bytes of JSON, and the first few of them.
    pub fn hang_mid_body() -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"Api";
        Self::Hang(head.into())
    }
}

/// One request as it came: its first line and its headers.
#[derive(Debug, Clone)]
pub struct Request {
    pub line: String,
    pub headers: String,
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct FakeEngine {
    folder: tempfile::TempDir,
    requests: Arc<Mutex<Vec<Request>>>,
    server: JoinHandle<()>,
}

impl FakeEngine {
    /// Answers each request as the script says.
    pub fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = tokio::spawn(serve(listener, Arc::new(script), Arc::clone(&requests)));
        Self {
            folder,
            requests,
            server,
        }
    }

    /// A good engine as far as its version goes; the rest is the script's.
    pub fn negotiating(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(move |request| match request.line.contains(" /version ") {
            true => Reply::ok(version("1.41", "1.12")),
            false => script(request),
        })
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// The first lines of all requests so far.
    pub fn lines(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.line.clone())
            .collect()
    }

    /// One header of the last request.
    pub fn last_header(&self, name: &str) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        let headers = &requests.last()?.headers;
        headers.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The answer to `/version`.
pub fn version(newest: &str, oldest: &str) -> String {
    format!(
        r#"{{"Version":"20.10.24","ApiVersion":"{newest}","MinAPIVersion":"{oldest}","Os":"linux","Arch":"amd64"}}"#
    )
}

/// A socket that nobody listens on any more.
pub fn dead_socket(folder: &Path) -> PathBuf {
    let path = folder.join("dead");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    path
}

async fn serve(listener: UnixListener, script: Arc<Script>, requests: Arc<Mutex<Vec<Request>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
        tokio::spawn(async move {
            // A client that goes away is what some of the tests are about.
            let _ = answer(stream, &*script, &requests).await;
        });
    }
}

async fn answer(
    mut stream: UnixStream,
    script: &Script,
    requests: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let request = read_request(&mut stream).await?;
    requests.lock().unwrap().push(request.clone());
    let mut reply = script(&request);
    while let Reply::After(pause, next) = reply {
        tokio::time::sleep(pause).await;
        reply = *next;
    }
    match reply {
        Reply::After(..) => {}
        Reply::Json(status, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
        }
        Reply::Raw(bytes) => stream.write_all(&bytes).await?,
        Reply::Hang(bytes) => {
            stream.write_all(&bytes).await?;
            std::future::pending::<()>().await;
        }
    }
    stream.shutdown().await
}

async fn read_request(stream: &mut UnixStream) -> std::io::Result<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (line, headers) = head.split_once("\r\n").unwrap_or_default();
    let length = headers.lines().find_map(|line| {
        let value = line.to_ascii_lowercase();
        value
            .strip_prefix("content-length:")
            .and_then(|value| value.trim().parse().ok())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(Request {
        line: line.to_owned(),
        headers: headers.to_owned(),
    })
}
