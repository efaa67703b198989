//! A name server that knows a few names: what it needs of RFC 1035 and no more.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::net::UdpSocket;

const A: u16 = 1;
const AAAA: u16 = 28;

/// Names with their answers: each question for an IPv4 address takes the next one, and the last one stays.
pub type Zone = BTreeMap<&'static str, VecDeque<Vec<IpAddr>>>;

/// The questions that came, as `name type`.
pub type Asked = Arc<Mutex<Vec<String>>>;

/// Answers until the runtime ends.
pub async fn serve(address: SocketAddr, mut zone: Zone, asked: Asked) {
    let socket = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = answer(&buffer[..length], &mut zone, &asked) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
}

/// `None` for what is no question.
fn answer(query: &[u8], zone: &mut Zone, asked: &Asked) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    while *query.get(at)? != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    let question = query.get(12..at + 5)?;
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let name = labels.join(".");
    asked.lock().unwrap().push(format!("{name} {kind}"));
    let found = zone.get_mut(name.as_str());
    let code = if found.is_some() { 0 } else { 3 };
    let addresses = found.map(|answers| match (kind, answers.len()) {
        (A, 2..) => answers.pop_front().unwrap(),
        _ => answers[0].clone(),
    });
    let records: Vec<Vec<u8>> = addresses
        .unwrap_or_default()
        .iter()
        .filter_map(|address| record(*address, kind))
        .collect();
    let count = u8::try_from(records.len()).unwrap();
    // An answer, recursion available, with one question.
    let head = [query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    Some([&head[..], question, &records.concat()].concat())
}

/// The name is a pointer to the question; nothing may be kept.
fn record(address: IpAddr, kind: u16) -> Option<Vec<u8>> {
    let data = match address {
        IpAddr::V4(address) if kind == A => address.octets().to_vec(),
        IpAddr::V6(address) if kind == AAAA => address.octets().to_vec(),
        _ => return None,
    };
    let [high, low] = kind.to_be_bytes();
    let length = u8::try_from(data.len()).unwrap();
    let head = [0xc0, 12, high, low, 0, 1, 0, 0, 0, 0, 0, length];
    Some([&head[..], &data].concat())
}
