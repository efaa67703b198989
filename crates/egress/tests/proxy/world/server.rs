//! Servers that hosts of the test's internet have: plain HTTP by script, TLS that echoes.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What a plain server got, request by request, as it came.
pub type Got = Arc<Mutex<Vec<String>>>;

/// Listens where the system says.
pub async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads one request with its body, answers by path, closes.
pub fn plain(listener: TcpListener, answer: fn(&str) -> String) -> Got {
    let got = Got::default();
    let log = got.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = log.clone();
            tokio::spawn(async move {
                let request = request(&mut stream).await;
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                if request.is_empty() {
                    // Connected, but nothing was let out.
                    return;
                }
                log.lock().unwrap().push(request);
                let _ = stream.write_all(answer(&path).as_bytes()).await;
            });
        }
    });
    got
}

/// A head, and the body that it announces.
async fn request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = super::head_of(stream).await;
    if let Some(length) = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
    {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        text += &String::from_utf8_lossy(&body);
    } else if text.contains("transfer-encoding: chunked") {
        while !text.ends_with("0\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { break };
            text.push(char::from(byte));
        }
    }
    text
}

/// An answer with a length.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Who is trusted, and a server's side, for these names.
pub fn tls(names: &[&str]) -> (TlsConnector, TlsAcceptor) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    (Arc::new(client).into(), Arc::new(server).into())
}

/// Greets, then says back what it hears, until the other side has no more.
pub fn echo(listener: TcpListener, acceptor: TlsAcceptor) {
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let (mut from, mut to) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
}
