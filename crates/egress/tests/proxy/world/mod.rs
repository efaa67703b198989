//! A small internet for the tests: names, connections, servers, and a place that asks.

pub mod dns;
pub mod net;
pub mod server;

use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_egress::{DialError, Dialer, EgressEvent, Host, Io, Limits, Policy, Proxy, Resolver, Running};
use stead_types::error::Code;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;

/// The address of every good name.
pub const PUBLIC: &str = "93.184.216.34";

/// Answers by script: each look-up takes the next answer of its name, and the last one stays. `None` hangs.
#[derive(Default)]
pub struct Names {
    answers: Mutex<BTreeMap<String, VecDeque<Option<Vec<IpAddr>>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub fn hang(&self, name: &str) {
        let mut answers = self.answers.lock().unwrap();
        answers.entry(name.to_owned()).or_default().push_back(None);
    }

    pub fn add(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let mut answers = self.answers.lock().unwrap();
        answers
            .entry(name.to_owned())
            .or_default()
            .push_back(Some(addresses));
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &Host) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(host.to_string());
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            let queue = answers.get_mut(host.as_str()).ok_or(io::ErrorKind::NotFound)?;
            match queue.len() {
                1 => queue[0].clone(),
                _ => queue.pop_front().unwrap(),
            }
        };
        match answer {
            Some(addresses) => Ok(addresses),
            None => std::future::pending().await,
        }
    }
}

/// Leads public addresses to servers of the test.
#[derive(Default)]
pub struct Wires {
    servers: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Wires {
    pub fn lead(&self, from: &str, to: SocketAddr) {
        self.servers.lock().unwrap().insert(from.parse().unwrap(), to);
    }

    pub fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }
}

#[async_trait]
impl Dialer for Wires {
    async fn dial(&self, to: SocketAddr) -> Result<Box<dyn Io>, DialError> {
        self.dialled.lock().unwrap().push(to);
        let server = self.servers.lock().unwrap().get(&to).copied();
        let failed = |source| DialError::Failed { to, source };
        let server = server.ok_or_else(|| failed(io::ErrorKind::ConnectionRefused.into()))?;
        Ok(Box::new(TcpStream::connect(server).await.map_err(failed)?))
    }
}

/// A proxy with its place.
pub struct World {
    pub names: Arc<Names>,
    pub wires: Arc<Wires>,
    pub events: mpsc::Receiver<EgressEvent>,
    pub running: Option<Running>,
    pub socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// `good.example`, `*.wild.example` and `odd.example:8443` are allowed; all names that are asked for here have
/// the address [`PUBLIC`] if the test says nothing else.
pub const DOMAINS: [&str; 3] = ["good.example", "*.wild.example", "odd.example:8443"];

pub fn world(limits: Limits) -> World {
    world_with_events(limits, 1000)
}

pub fn world_with_events(limits: Limits, events: usize) -> World {
    let (names, wires) = (Arc::new(Names::default()), Arc::new(Wires::default()));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("egress");
    let (sender, events) = mpsc::channel(events);
    let proxy = Proxy::new(Policy::parse(DOMAINS).unwrap(), sender)
        .resolver(names.clone())
        .dialer(wires.clone())
        .limits(limits);
    let running = proxy.start(UnixListener::bind(&socket).unwrap());
    World {
        names,
        wires,
        events,
        running: Some(running),
        socket,
        _folder: folder,
    }
}

impl World {
    /// All good names lead to this server on this port.
    pub fn serve(&self, port: u16, server: SocketAddr) {
        self.wires.lead(&format!("{PUBLIC}:{port}"), server);
        for name in ["good.example", "a.wild.example", "b.wild.example", "odd.example"] {
            self.names.add(name, &[PUBLIC]);
        }
    }

    pub async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    /// Sends these bytes and returns all that comes until the end.
    pub async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // What the proxy refuses early it need not have read.
        let _ = stream.write_all(bytes.as_ref()).await;
        rest(&mut stream).await
    }

    /// A tunnel that was accepted.
    pub async fn tunnel(&self, target: &str) -> UnixStream {
        let mut stream = self.connect().await;
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = head_of(&mut stream).await;
        assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\n");
        stream
    }

    /// The events so far, each as `host:port decision code address`.
    pub fn recorded(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            lines.push(line(&event));
        }
        lines
    }
}

pub fn line(event: &EgressEvent) -> String {
    let word = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{}:{} {:?} {} {}",
        word(event.host.clone()),
        word(event.port.map(|port| port.to_string())),
        event.decision,
        word(event.reason.map(|reason| reason.code().to_owned())),
        word(event.address.map(|address| address.to_string())),
    )
}

/// All that comes until the end, as text. A connection that is torn down counts as ended.
pub async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Up to the empty line and not further.
pub async fn head_of(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The code of a refusal, which its head and its text have to say alike.
pub fn code(answer: &str) -> &str {
    let header = answer.lines().find_map(|line| line.strip_prefix("Stead-Error: "));
    let text = answer.lines().find_map(|line| line.strip_prefix("code: "));
    assert_eq!(header, text, "in {answer:?}");
    header.unwrap_or("none")
}

/// A plain request for a host.
pub fn get(url: &str, host: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// No test waits for ever.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("within a minute")
}
