//! The handshake: both sides prove that they know the key of the instance.
//!
//! ```text
//! host                                     supervisor
//!  Hello {generations, nonce h, epoch}  ->
//!                                       <-  Challenge {generation, nonce s, proof(supervisor, …)}
//!  Proof {proof(host, …)}               ->
//!                                       <-  Welcome {…}
//! ```
//!
//! A proof is HMAC-SHA-256 under the key over the role, both nonces, the generation and the epoch, so
//! that neither side's proof can be played back to the other, in another connection, or for another epoch.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// A random number that is used for one connection only.
pub type Nonce = [u8; 32];

/// The secret that belongs to one instance. Never printed, never in an argument list or environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Wraps 256 random bits.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the one file through which the key reaches the supervisor.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Who proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that dialled.
    Host,
    /// The side inside the place.
    Supervisor,
}

/// What a proof is about.
#[derive(Debug, Clone, Copy)]
pub struct Transcript {
    /// The host's nonce.
    pub host: Nonce,
    /// The supervisor's nonce.
    pub supervisor: Nonce,
    /// The generation that both sides will speak.
    pub generation: u16,
    /// The host's owner epoch.
    pub epoch: u64,
}

impl Transcript {
    fn mac(&self, role: Role, key: &Key) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("any key length");
        mac.update(match role {
            Role::Host => b"stead host 1",
            Role::Supervisor => b"stead supr 1",
        });
        mac.update(&self.host);
        mac.update(&self.supervisor);
        mac.update(&self.generation.to_le_bytes());
        mac.update(&self.epoch.to_le_bytes());
        mac
    }

    /// The proof that `role` sends.
    pub fn prove(&self, role: Role, key: &Key) -> [u8; 32] {
        self.mac(role, key).finalize().into_bytes().into()
    }

    /// Whether `proof` is the one that `role` had to send; compared in constant time.
    pub fn verify(&self, role: Role, key: &Key, proof: &[u8; 32]) -> bool {
        self.mac(role, key).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_only_for_its_role_key_and_transcript() {
        let key = Key::new([1; 32]);
        let transcript = Transcript {
            host: [2; 32],
            supervisor: [3; 32],
            generation: 1,
            epoch: 4,
        };
        let proof = transcript.prove(Role::Host, &key);
        assert!(transcript.verify(Role::Host, &key, &proof));
        assert!(!transcript.verify(Role::Supervisor, &key, &proof));
        assert!(!transcript.verify(Role::Host, &Key::new([9; 32]), &proof));
        for other in [
            Transcript {
                host: [9; 32],
                ..transcript
            },
            Transcript {
                supervisor: [9; 32],
                ..transcript
            },
            Transcript {
                generation: 2,
                ..transcript
            },
            Transcript {
                epoch: 5,
                ..transcript
            },
        ] {
            assert!(!other.verify(Role::Host, &key, &proof));
        }
    }

    #[test]
    fn a_key_does_not_print() {
        assert_eq!(format!("{:?}", Key::new([0x5a; 32])), "Key(..)");
    }
}
