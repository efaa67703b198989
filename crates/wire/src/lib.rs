//! The protocol between a host and the supervisor that runs inside a place.
//!
//! A connection is a byte stream of [frames](frame). The first four frames are the handshake
//! ([`proof`]): each side proves that it knows the 256-bit key of the instance, without sending it.
//! After that the host sends [`ToSupervisor`] and the supervisor sends [`FromSupervisor`].
//!
//! Nothing here does IO. Everything that comes from the other side is bounded before it is kept and
//! parsed without panics; what is unknown is refused, never skipped.
#![forbid(unsafe_code)]

pub mod frame;
pub mod message;
pub mod proof;

pub use frame::{Frame, FrameDecoder, FrameError, MAX_FRAME, MAX_HANDSHAKE_FRAME};
pub use message::*;
pub use proof::{Key, Nonce, Role};

/// The newest generation of the protocol that this build speaks.
///
/// A generation never changes once it was released: `tests/generation_1.rs` holds its bytes.
pub const GENERATION: u16 = 1;

/// The oldest generation that this build still speaks.
pub const OLDEST_GENERATION: u16 = 1;
