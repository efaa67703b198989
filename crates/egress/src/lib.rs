//! The proxy on the host side that is the only way out of a place whose network policy is a list of domains.
//!
//! A place has no network but its own loopback. What listens there copies each connection to a socket of the
//! host, and on that socket a [`Proxy`] answers: one socket, one [`Policy`], one place. It speaks HTTP/1.1:
//! `CONNECT host:port` for TLS, and plain requests in absolute form.
//!
//! A request is let out when all of this holds, in this order; each refusal has its [`Reason`] with a stable code,
//! and each decision is an [`EgressEvent`]:
//!
//! 1. the head is strictly HTTP/1.1, and can be read in one way only ([`head`]);
//! 2. its `Host` is the host that it asks for;
//! 3. the [`Policy`] has the host and the port;
//! 4. the proxy itself resolves the name ([`Resolver`]), and every address of the answer is public
//!    ([`address`]); the connection goes to one of these very addresses ([`Dialer`]), so that there is no
//!    second look-up that could answer otherwise;
//! 5. after `CONNECT`, the first bytes are the greeting of TLS for this very host ([`hello`]), or, where TLS is not
//!    asked for, a plain request that is judged like any other.
//!
//! What is not looked at: what goes through a tunnel after the greeting.
//!
//! ```no_run
//! # async fn example(socket: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use stead_egress::{Policy, Proxy};
//!
//! let policy = Policy::parse(["example.org", "*.example.net:8443"])?;
//! let (sender, mut events) = tokio::sync::mpsc::channel(256);
//! let running = Proxy::new(policy, sender).start(tokio::net::UnixListener::bind(socket)?);
//! while let Some(event) = events.recv().await {
//!     println!("{event:?}");
//! }
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod activity;
pub mod address;
mod answer;
pub mod body;
mod connection;
mod dial;
mod event;
mod exchange;
mod gate;
pub mod head;
pub mod hello;
mod host;
mod inbound;
mod limits;
mod listen;
mod policy;
mod proxy;
mod reply;
mod resolve;
mod target;
mod tunnel;
mod upload;

pub use dial::{DialError, Dialer, HostDialer, Io};
pub use event::{Decision, EgressEvent, Reason};
pub use host::{Host, HostError};
pub use limits::Limits;
pub use listen::Listener;
pub use policy::{DEFAULT_PORTS, MAX_DOMAINS, Policy, PolicyError};
pub use proxy::{Proxy, Running};
pub use resolve::{HostResolver, Resolver};
