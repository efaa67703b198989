//! The whole way: from a namespace with nothing but loopback, through the proxy with the host's own resolver and
//! connections, to servers with public addresses in another namespace. Whatever must not be reached is there, listens,
//! and is reached from the host as a control.

use crate::world::dns::{self, Asked, Zone};
use crate::world::net::{
    FORWARDER, HOST, METADATA, NAME_SERVER, Namespace, PRIVATE, SERVER_V6, inside, internet, place,
};
use crate::world::server::{Got, echo, ok, plain, tls};
use crate::world::{PUBLIC, code, get, head_of, line, rest, soon};
use rustls::pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use stead_egress::{EgressEvent, Policy, Proxy, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

/// All names that have addresses. The list of what is allowed has all of them but `evil.example`.
const NAMES: [(&str, &[&[&str]]); 16] = [
    ("good.example", &[&[PUBLIC]]),
    ("v6.wild.example", &[&[SERVER_V6]]),
    ("both.wild.example", &[&[SERVER_V6, PUBLIC]]),
    ("evil.example", &[&[PUBLIC]]),
    ("turning.wild.example", &[&[PUBLIC], &[PRIVATE]]),
    ("loopback.wild.example", &[&["127.0.0.1"]]),
    ("private.wild.example", &[&[PRIVATE]]),
    ("metadata.wild.example", &[&[METADATA]]),
    ("loopback6.wild.example", &[&["::1"]]),
    ("mapped.wild.example", &[&["::ffff:127.0.0.1"]]),
    ("mixed.wild.example", &[&[PUBLIC, PRIVATE]]),
    ("mixed6.wild.example", &[&[PUBLIC, "::1"]]),
    ("unspecified.wild.example", &[&["0.0.0.0"]]),
    ("host.wild.example", &[&[HOST]]),
    ("host6.wild.example", &[&["2606:2800::1"]]),
    // What the search list of the host would make of a name that does not exist.
    ("missing.wild.example.wild.example", &[&[PUBLIC]]),
];

/// The host's side of everything.
struct Host {
    place: Namespace,
    _internet: Namespace,
    runtime: Runtime,
    events: mpsc::Receiver<EgressEvent>,
    asked: Asked,
    server: Got,
    traps: Vec<Got>,
    connector: TlsConnector,
    running: Option<Running>,
    _folder: tempfile::TempDir,
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn zone() -> Zone {
    let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).collect();
    let names = NAMES.iter();
    names
        .map(|(name, answers)| (*name, answers.iter().map(parse).collect()))
        .collect()
}

/// Servers of the internet: names, plain HTTP and TLS on public addresses, and traps on others.
fn serve_internet(
    internet: &Namespace,
    asked: Asked,
    acceptor: tokio_rustls::TlsAcceptor,
) -> (Got, Vec<Got>) {
    let (tell, told) = channel();
    internet.spawn(move |runtime| {
        runtime.block_on(async {
            dns::serve(address(NAME_SERVER, 53), zone(), asked).await;
            let bind = async |ip, port| TcpListener::bind(address(ip, port)).await.unwrap();
            echo(bind(PUBLIC, 443).await, acceptor.clone());
            echo(bind(SERVER_V6, 443).await, acceptor);
            plain(bind(SERVER_V6, 80).await, answer);
            let server = plain(bind(PUBLIC, 80).await, answer);
            let mut traps = Vec::new();
            for ip in [PRIVATE, METADATA] {
                traps.push(plain(bind(ip, 80).await, |_| ok("trap")));
            }
            tell.send((server, traps)).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

fn answer(path: &str) -> String {
    let to = match path {
        "/to-private" => "http://10.0.0.5/",
        "/to-loopback" => "http://loopback.wild.example/",
        "/to-good" => "http://good.example/",
        _ => return ok("hello"),
    };
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let internet = internet(folder.path());
        let asked = Asked::default();
        let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let (connector, acceptor) = tls(&names);
        let (server, mut traps) = serve_internet(&internet, asked.clone(), acceptor);
        let runtime = Runtime::new().unwrap();
        let socket = folder.path().join("egress");
        let (sender, events) = mpsc::channel(1000);
        let running = runtime.block_on(async {
            for ip in ["127.0.0.1", "::1", HOST, "2606:2800::1"] {
                let listener = TcpListener::bind(address(ip, 80)).await.unwrap();
                traps.push(plain(listener, |_| ok("trap")));
            }
            let policy = Policy::parse(["good.example", "*.wild.example"]).unwrap();
            Proxy::new(policy, sender).start(UnixListener::bind(&socket).unwrap())
        });
        Self {
            place: place(&socket),
            _internet: internet,
            runtime,
            events,
            asked,
            server,
            traps,
            connector,
            running: Some(running),
            _folder: folder,
        }
    }

    /// Sends bytes from the place to the proxy, and returns all that comes.
    fn ask(&self, request: String) -> String {
        let asking = self.place.spawn(move |runtime| {
            runtime.block_on(soon(async {
                let mut stream = TcpStream::connect(FORWARDER).await.unwrap();
                let _ = stream.write_all(request.as_bytes()).await;
                rest(&mut stream).await
            }))
        });
        asking.join().unwrap()
    }

    fn get(&self, host: &str) -> String {
        self.ask(get(&format!("http://{host}/"), host))
    }

    /// Says something through TLS from the place, and returns what the server says back.
    fn echo(&self, target: &str, name: &str) -> Result<String, String> {
        let connector = self.connector.clone();
        let head = format!("CONNECT {target}:443 HTTP/1.1\r\nHost: {target}:443\r\n\r\n");
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let asking = self.place.spawn(move |runtime| {
            runtime.block_on(soon(async {
                let mut stream = TcpStream::connect(FORWARDER).await.unwrap();
                stream.write_all(head.as_bytes()).await.unwrap();
                let answer = head_of(&mut stream).await;
                if !answer.starts_with("HTTP/1.1 200 ") {
                    return Err(answer);
                }
                let stream = connector.connect(name, stream).await;
                let mut stream = stream.map_err(|error| error.to_string())?;
                stream.write_all(b"said").await.unwrap();
                let mut back = [0; 4];
                stream.read_exact(&mut back).await.unwrap();
                Ok(String::from_utf8_lossy(&back).into_owned())
            }))
        });
        asking.join().unwrap()
    }

    fn recorded(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .map(|event| line(&event))
            .collect()
    }

    fn caught(&self) -> usize {
        self.traps.iter().map(|trap| trap.lock().unwrap().len()).sum()
    }
}

#[test]
fn an_allowed_domain_works_and_another_does_not() {
    if !inside("namespaces::an_allowed_domain_works_and_another_does_not") {
        return;
    }
    let mut host = Host::new();
    assert_eq!(host.echo("good.example", "good.example").unwrap(), "said");
    assert_eq!(
        host.echo("both.wild.example", "both.wild.example").unwrap(),
        "said"
    );
    assert_eq!(host.echo("v6.wild.example", "v6.wild.example").unwrap(), "said");
    assert!(host.get("good.example").ends_with("hello"));
    assert!(host.get("v6.wild.example").ends_with("hello"));
    let recorded = host.recorded();
    assert_eq!(recorded[0], format!("good.example:443 Allowed - {PUBLIC}:443"));
    assert_eq!(
        recorded[4],
        format!("v6.wild.example:80 Allowed - [{SERVER_V6}]:80")
    );
    // Another name in the greeting, with the same addresses and a certificate that would fit.
    let error = host.echo("good.example", "evil.example").unwrap_err();
    assert!(error.contains("AccessDenied"), "{error}");
    assert_eq!(
        host.recorded(),
        ["good.example:443 Refused egress_sni_mismatch -"]
    );
    assert_eq!(code(&host.get("evil.example")), "egress_host_not_allowed");
    assert!(
        host.echo("evil.example", "evil.example")
            .unwrap_err()
            .contains("egress_host_not_allowed")
    );
    assert_eq!(code(&host.get("missing.wild.example")), "egress_name_unresolved");
    assert_eq!(code(&host.get(PUBLIC)), "egress_ip_literal");
    let asked = host.asked.lock().unwrap().clone();
    assert!(asked.contains(&"missing.wild.example 1".to_owned()));
    assert!(
        !asked
            .iter()
            .any(|name| name.starts_with("evil") || name.contains("wild.example.wild")),
        "{asked:?}"
    );
    // Ended from outside, nothing is left to ask.
    let running = host.running.take().unwrap();
    host.runtime.block_on(running.shutdown());
    assert_eq!(host.get("good.example"), "");
}

#[test]
fn names_that_lead_inside_are_refused() {
    if !inside("namespaces::names_that_lead_inside_are_refused") {
        return;
    }
    let mut host = Host::new();
    let bad = NAMES.iter().map(|(name, _)| *name).filter(|name| {
        let good = ["good.", "v6.", "both.", "evil.", "turning.", "missing."];
        !good.iter().any(|front| name.starts_with(front))
    });
    let bad: Vec<&str> = bad.collect();
    for name in &bad {
        let answer = host.get(name);
        assert_eq!(code(&answer), "egress_address_refused", "{name}: {answer}");
        let error = host.echo(name, name).unwrap_err();
        assert!(error.contains("egress_address_refused"), "{name}: {error}");
    }
    let recorded = host.recorded();
    assert_eq!(recorded.len(), 2 * bad.len());
    assert!(
        recorded
            .iter()
            .all(|line| line.contains("Refused egress_address_refused "))
    );
    // The first look-up is good and the second is not: each request is judged by its own.
    assert!(host.get("turning.wild.example").ends_with("hello"));
    assert_eq!(code(&host.get("turning.wild.example")), "egress_address_refused");
    let asked = host.asked.lock().unwrap().clone();
    let turns = asked
        .iter()
        .filter(|name| *name == "turning.wild.example 1")
        .count();
    assert_eq!(turns, 2, "{asked:?}");
    // Redirects come back to the place; what it makes of them is judged.
    for (path, expected) in [
        ("to-private", "egress_ip_literal"),
        ("to-loopback", "egress_address_refused"),
        ("to-good", "none"),
    ] {
        let answer = host.ask(get(&format!("http://good.example/{path}"), "good.example"));
        let to = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: "))
            .unwrap();
        let target = to.trim_start_matches("http://").trim_end_matches('/');
        assert_eq!(code(&host.ask(get(to, target))), expected);
    }
    assert_eq!(host.caught(), 0, "something inside was reached");
    assert_eq!(host.server.lock().unwrap().len(), 5);
    // The control: all of the traps are there for the host.
    host.runtime.block_on(async {
        for ip in [PRIVATE, METADATA, "127.0.0.1", "::1", HOST, "2606:2800::1"] {
            let mut stream = soon(TcpStream::connect(address(ip, 80))).await.unwrap();
            stream.write_all(get("/", ip).as_bytes()).await.unwrap();
            assert!(rest(&mut stream).await.ends_with("trap"));
        }
    });
    assert_eq!(host.caught(), 6);
}

/// What is tried without the proxy. Returns what succeeded.
async fn direct() -> Vec<&'static str> {
    let mut reached = Vec::new();
    for ip in [PUBLIC, SERVER_V6, PRIVATE, METADATA, HOST] {
        let connecting = TcpStream::connect(address(ip, 80));
        if soon(connecting).await.is_ok() {
            reached.push(ip);
        }
    }
    // A question for good.example. The answer is awaited only where the question could be sent.
    let question = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x04good\x07example\0\0\x01\0\x01";
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    if socket.send_to(question, address(NAME_SERVER, 53)).await.is_ok() {
        soon(socket.recv(&mut [0; 100])).await.unwrap();
        reached.push("dns");
    }
    reached
}

#[test]
fn there_is_no_other_way_out_of_the_place() {
    if !inside("namespaces::there_is_no_other_way_out_of_the_place") {
        return;
    }
    let host = Host::new();
    let tried = host.place.spawn(|runtime| runtime.block_on(direct()));
    assert_eq!(tried.join().unwrap(), [""; 0]);
    // The controls: from the host, and from the place through the proxy.
    let reached = host.runtime.block_on(direct());
    assert_eq!(reached, [PUBLIC, SERVER_V6, PRIVATE, METADATA, HOST, "dns"]);
    assert!(host.get("good.example").ends_with("hello"));
}

#[test]
fn an_ordinary_client_gets_through_by_its_environment() {
    let test = "namespaces::an_ordinary_client_gets_through_by_its_environment";
    let curl = |place: &Namespace, url: &str| {
        let mut command = place.command("curl");
        command.args(["-sS", "-L", "--max-time", "30", url]);
        for name in ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, format!("http://{FORWARDER}"));
        }
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    if std::process::Command::new("curl").arg("-V").output().is_err() {
        stead_testkit::skip(test, "there is no curl here");
        return;
    }
    if !inside(test) {
        return;
    }
    let host = Host::new();
    assert_eq!(curl(&host.place, "http://good.example/"), "hello");
    assert_eq!(curl(&host.place, "http://GOOD.example/to-good"), "hello");
    for (url, expected) in [
        ("http://evil.example/", "egress_host_not_allowed"),
        ("http://good.example/to-private", "egress_ip_literal"),
        ("http://good.example/to-loopback", "egress_address_refused"),
        ("https://evil.example/", "403"),
        ("http://0x7f.1/", "egress_ip_literal"),
        ("http://2130706433/", "egress_ip_literal"),
        ("http://good.example./", "egress_host_invalid"),
    ] {
        let answer = curl(&host.place, url);
        assert!(answer.contains(expected), "{url}: {answer}");
    }
    assert_eq!(host.caught(), 0);
}
