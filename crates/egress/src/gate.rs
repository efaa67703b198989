//! From a target to a connection: policy, look-up, judgement of every address, connection, record.

use crate::address::{self, AddressKind};
use crate::dial::{DialError, Dialer, Io};
use crate::event::{Decision, EgressEvent, Reason};
use crate::host::Host;
use crate::limits::Limits;
use crate::policy::Policy;
use crate::resolve::Resolver;
use crate::target::Target;
use std::net::SocketAddr;
use std::sync::Arc;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How many of a host's addresses are tried.
const TRIED: usize = 4;

/// The most of a host that an event repeats, in bytes. The place may write as much as fits into a head.
const SHOWN: usize = 255;

/// What all connections of a place share.
pub(crate) struct Gate {
    pub(crate) policy: Policy,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) events: mpsc::Sender<EgressEvent>,
    pub(crate) limits: Limits,
}

/// Why a target is not connected to, and about which address that is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) address: Option<SocketAddr>,
}

impl From<Reason> for Denial {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            address: None,
        }
    }
}

/// A connection to an address that was judged.
pub(crate) struct Way {
    pub(crate) stream: Box<dyn Io>,
    pub(crate) address: SocketAddr,
}

impl Gate {
    /// The host by the policy, and its addresses, all of them judged.
    pub(crate) async fn admit(&self, target: &Target) -> Result<(Host, Vec<SocketAddr>), Denial> {
        let host = self.policy.decide(&target.host, target.port)?;
        let answer = timeout(self.limits.resolve, self.resolver.resolve(&host)).await;
        let addresses = match answer {
            Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
            Ok(Ok(_)) => return Err(Reason::NameUnresolved.into()),
            Ok(Err(error)) => {
                tracing::debug!(%host, %error, "a name could not be resolved");
                return Err(Reason::NameUnresolved.into());
            }
            Err(_) => return Err(Reason::NameUnresolved.into()),
        };
        address::judge_all(&addresses).map_err(|(address, kind)| Denial {
            reason: Reason::AddressRefused(kind),
            address: Some(SocketAddr::new(address, target.port)),
        })?;
        let with_port = |address| SocketAddr::new(address, target.port);
        Ok((host, addresses.into_iter().map(with_port).collect()))
    }

    /// Connects to the first address that takes it. Never looks the name up again.
    pub(crate) async fn dial(&self, addresses: &[SocketAddr]) -> Result<Way, Denial> {
        let tried = &addresses[..addresses.len().min(TRIED)];
        let each = self.limits.connect / u32::try_from(tried.len().max(1)).unwrap_or(1);
        for address in tried {
            match timeout(each, self.dialer.dial(*address)).await {
                Ok(Ok(stream)) => {
                    return Ok(Way {
                        stream,
                        address: *address,
                    });
                }
                Ok(Err(DialError::OwnMachine { to })) => {
                    return Err(Denial {
                        reason: Reason::AddressRefused(AddressKind::OwnMachine),
                        address: Some(to),
                    });
                }
                Ok(Err(DialError::Failed { to, source })) => {
                    tracing::debug!(%to, error = %source, "an address could not be connected to");
                }
                Err(_) => tracing::debug!(to = %address, "an address did not answer in time"),
            }
        }
        Err(Denial {
            reason: Reason::Unreachable,
            address: addresses.first().copied(),
        })
    }

    /// Hands the decision on. Waits while the channel is full: nothing is let out before it is recorded.
    ///
    /// # Errors
    /// When nobody takes events any more.
    pub(crate) async fn record(
        &self,
        target: Option<&Target>,
        outcome: Result<SocketAddr, &Denial>,
    ) -> Result<(), Reason> {
        let shown = |target: &Target| target.host.chars().take(SHOWN).collect();
        let (decision, reason, address) = match outcome {
            Ok(address) => (Decision::Allowed, None, Some(address)),
            Err(denial) => (denial.reason.decision(), Some(denial.reason), denial.address),
        };
        let event = EgressEvent {
            at: OffsetDateTime::now_utc(),
            host: target.map(shown),
            port: target.map(|target| target.port),
            decision,
            reason,
            address,
        };
        self.events.send(event).await.map_err(|_| Reason::EventsLost)
    }
}
