//! Reaching what is outside by every kind of socket.

use super::{Attempt, Outcome, Targets};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Long enough for a loopback; a place without a network answers at once.
const PATIENCE: Duration = Duration::from_secs(2);

const AF_INET: i32 = 2;
const AF_PACKET: i32 = 17;
const AF_VSOCK: i32 = 40;
const SOCK_STREAM: i32 = 1;
const SOCK_RAW: i32 = 3;
const IPPROTO_ICMP: i32 = 1;
const EVERY_PACKET: i32 = 0x0300;

pub fn attempts(targets: &Targets) -> Vec<Attempt> {
    vec![
        ("connect to the host's loopback", loopback(targets.port)),
        (
            "find a way to the metadata address",
            way_to(Ipv4Addr::new(169, 254, 169, 254), 80),
        ),
        (
            "find a way to a name server",
            way_to(Ipv4Addr::new(9, 9, 9, 9), 53),
        ),
        (
            "connect to an abstract socket of the host",
            abstract_socket(&targets.abstract_socket),
        ),
        (
            "open a raw socket",
            stead_sys::attempt_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP).into(),
        ),
        (
            "open a packet socket",
            stead_sys::attempt_socket(AF_PACKET, SOCK_RAW, EVERY_PACKET).into(),
        ),
        (
            "open a socket to the hypervisor",
            stead_sys::attempt_socket(AF_VSOCK, SOCK_STREAM, 0).into(),
        ),
    ]
}

fn loopback(port: u16) -> Outcome {
    let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, PATIENCE).map(drop).into()
}

/// Connecting a datagram socket sends nothing; the kernel only looks for a route.
fn way_to(address: Ipv4Addr, port: u16) -> Outcome {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((address, port)))
        .into()
}

fn abstract_socket(name: &str) -> Outcome {
    let connected: io::Result<UnixStream> = std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixStream::connect_addr(&address));
    connected.map(drop).into()
}
