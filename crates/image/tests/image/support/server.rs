//! A server that answers what a test tells it to: HTTP/1.1 by hand, a connection for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a server does with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A whole answer.
    Whole(u16, Vec<(String, String)>, Vec<u8>),
    /// The promise of so many bytes, these, and the end.
    Short(u64, Vec<u8>),
    /// The promise of so many bytes, these, and then silence with the connection open.
    Hang(u64, Vec<u8>),
    /// The promise of so many bytes, and then one now and again.
    Drip(u64),
    /// Bytes without end.
    Endless,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::Whole(200, vec![], body.into())
    }

    pub fn status(status: u16) -> Self {
        Self::Whole(status, vec![], b"{}".to_vec())
    }

    pub fn with(status: u16, headers: &[(&str, &str)]) -> Self {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self::Whole(status, headers.collect(), b"{}".to_vec())
    }
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, wanted: &str) -> Option<&str> {
        let named = self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.as_str())
    }
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server on a free port of this machine. It ends with the test's process.
pub struct Server {
    pub host: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1", script)
    }

    pub fn start_on(address: &str, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let host = format!("{address}:{}", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                // A client that goes away is what some of the tests are about.
                std::thread::spawn(move || drop(answer(stream, &*script, &seen)));
            }
        });
        Self { host, requests }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.path).collect()
    }
}

fn answer(mut stream: TcpStream, script: &Script, seen: &Mutex<Vec<Request>>) -> std::io::Result<()> {
    let request = read(&stream)?;
    seen.lock().unwrap().push(request.clone());
    let mut head = |status: u16, length: u64, headers: &[(String, String)]| {
        let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all((head + "\r\n").as_bytes())
    };
    match script(&request) {
        Reply::Whole(status, headers, body) => {
            head(status, body.len() as u64, &headers)?;
            stream.write_all(&body)
        }
        Reply::Short(length, body) => {
            head(200, length, &[])?;
            stream.write_all(&body)
        }
        Reply::Hang(length, body) => {
            head(200, length, &[])?;
            stream.write_all(&body)?;
            wait_for_the_other(&mut stream)
        }
        Reply::Drip(length) => {
            head(200, length, &[])?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Reply::Endless => {
            head(200, u64::MAX / 2, &[])?;
            loop {
                stream.write_all(&[b'['; 65536])?;
            }
        }
    }
}

fn wait_for_the_other(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read(&mut [0]).map(drop)
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.push((name.to_owned(), value.to_owned()));
    }
    Ok(Request {
        method,
        path,
        headers,
    })
}
