//! Readiness of descriptors, by `epoll`.

use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Which part of its owner a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The listening socket.
    Listener = 1,
    /// The signal descriptor.
    Signals = 2,
    /// A connection from a host.
    Connection = 3,
    /// A command's standard output or terminal.
    Stdout = 4,
    /// A command's standard error.
    Stderr = 5,
    /// A command's standard input.
    Stdin = 6,
    /// News about a command's leader.
    Leader = 7,
}

impl Part {
    const ALL: [Part; 7] = [
        Part::Listener,
        Part::Signals,
        Part::Connection,
        Part::Stdout,
        Part::Stderr,
        Part::Stdin,
        Part::Leader,
    ];
}

/// Names a registered descriptor: its owner's key, which is never used twice, and the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The owner.
    pub key: u32,
    /// The part.
    pub part: Part,
}

impl Token {
    fn encode(self) -> u64 {
        u64::from(self.key) << 8 | self.part as u64
    }

    fn decode(data: u64) -> Option<Self> {
        let part = Part::ALL.into_iter().find(|part| *part as u64 == data & 0xff)?;
        Some(Self {
            key: u32::try_from(data >> 8).ok()?,
            part,
        })
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Data to read, or the end.
    Read,
    /// Room to write.
    Write,
    /// Either.
    Both,
    /// Only errors, which cannot be switched off.
    Nothing,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Interest::Nothing => epoll::EventFlags::empty(),
        }
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor.
    pub fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.0,
            fd,
            epoll::EventData::new_u64(token.encode()),
            interest.flags(),
        )?)
    }

    /// Changes what is waited for.
    pub fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.0,
            fd,
            epoll::EventData::new_u64(token.encode()),
            interest.flags(),
        )?)
    }

    /// Removes a descriptor; needed before it is closed while a copy of it stays open elsewhere.
    pub fn remove(&self, fd: impl AsFd) {
        // Not registered is what we want anyway.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits, for ever when `timeout` is `None`, and gives what is ready.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<()> {
        ready.clear();
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        // A fraction of a millisecond must not become a busy loop: epoll's own limit is in nanoseconds.
        let timeout = timeout.map(|t| rustix::event::Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok(count) => {
                ready.extend(events[..count].iter().filter_map(|event| {
                    let data = event.data;
                    Token::decode(data.u64())
                }));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_and_foreign_data_is_none() {
        for part in Part::ALL {
            let token = Token { key: u32::MAX, part };
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(0), None);
        assert_eq!(Token::decode(u64::MAX), None);
    }
}
