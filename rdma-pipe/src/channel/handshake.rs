//! The handshake: derives a key for each direction from a key that both sides have.

use hkdf::Hkdf;
use sha2::Sha256;
use spake2::{Ed25519Group, Identity, Password, Spake2};

use super::{Opener, Sealer};
use crate::error::{Error, Result};

/// The first bytes of each hello. The last of them is the version of the protocol.
const MAGIC: [u8; 7] = *b"rdpipe\x04";

/// The role of a side in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// A handshake that is waiting for the peer's hello.
pub struct Handshake {
    role: Role,
    exchange: Spake2<Ed25519Group>,
    hello: Vec<u8>,
}

impl Handshake {
    /// Starts a handshake. Also returns the hello to send to the peer.
    pub fn start(role: Role, key: &[u8]) -> (Handshake, Vec<u8>) {
        let (client, server) = (Identity::new(b"rdma-pipe client"), Identity::new(b"rdma-pipe server"));
        let password = Password::new(key);
        let (exchange, element) = match role {
            Role::Client => Spake2::start_a(&password, &client, &server),
            Role::Server => Spake2::start_b(&password, &client, &server),
        };
        let hello = [MAGIC.as_slice(), &element].concat();
        (Handshake { role, exchange, hello: hello.clone() }, hello)
    }

    /// Processes the peer's hello. A peer with a different key is detected later, when its first message cannot be
    /// decrypted.
    ///
    /// # Errors
    ///
    /// The peer is a different program, or uses a different version of the protocol.
    pub fn finish(self, hello: &[u8]) -> Result<(Sealer, Opener)> {
        let (magic, element) = hello.split_at_checked(MAGIC.len()).ok_or_else(not_ours)?;
        if magic[..6] != MAGIC[..6] {
            return Err(not_ours());
        }
        if magic[6] != MAGIC[6] {
            let text = format!(
                "the peer uses version {} of the protocol, this side {}; update the older program",
                magic[6], MAGIC[6]
            );
            return Err(Error::protocol(text));
        }
        let secret = self.exchange.finish(element).map_err(|_| not_ours())?;
        let (client, server) = match self.role {
            Role::Client => (self.hello.as_slice(), hello),
            Role::Server => (hello, self.hello.as_slice()),
        };
        let expand = Hkdf::<Sha256>::new(Some(&[client, server].concat()), &secret);
        let key = |label: &[u8]| {
            let mut key = [0; 32];
            // HKDF cannot fail for 32 bytes.
            let _ = expand.expand(label, &mut key);
            key
        };
        let (to_server, to_client) = (key(b"client to server"), key(b"server to client"));
        Ok(match self.role {
            Role::Client => (Sealer::new(&to_server), Opener::new(&to_client)),
            Role::Server => (Sealer::new(&to_client), Opener::new(&to_server)),
        })
    }
}

fn not_ours() -> Error {
    Error::protocol("the peer does not speak the protocol of rdma-pipe; check host and port")
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("role", &self.role).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::*;

    fn pair(client: &[u8], server: &[u8]) -> ((Sealer, Opener), (Sealer, Opener)) {
        let (left, to_server) = Handshake::start(Role::Client, client);
        let (right, to_client) = Handshake::start(Role::Server, server);
        (left.finish(&to_client).unwrap(), right.finish(&to_server).unwrap())
    }

    #[test]
    fn same_key_opens_both_directions() {
        let ((mut seal, mut open), (mut peer_seal, mut peer_open)) = pair(b"key", b"key");
        let Ok(Message::Control(frame)) = peer_open.open(seal.control(b"there")) else { panic!() };
        assert_eq!(frame, b"there");
        let Ok(Message::Control(frame)) = open.open(peer_seal.control(b"back")) else { panic!() };
        assert_eq!(frame, b"back");
    }

    #[test]
    fn wrong_key_opens_nothing() {
        let ((mut seal, mut open), (mut peer_seal, mut peer_open)) = pair(b"key", b"kez");
        assert!(peer_open.open(seal.control(b"there")).is_err());
        assert!(open.open(peer_seal.control(b"back")).is_err());
    }

    #[test]
    fn malformed_hello_is_refused() {
        let mut other = MAGIC.to_vec();
        other[6] += 1;
        for hello in [b"".as_slice(), b"GET / HTTP/1.0", &MAGIC, &[MAGIC.as_slice(), &[0xff; 33]].concat(), &other] {
            let (handshake, _) = Handshake::start(Role::Server, b"key");
            assert!(handshake.finish(hello).is_err(), "{hello:?}");
        }
    }

    #[test]
    fn own_hello_sent_back_is_refused_or_opens_nothing() {
        let (handshake, hello) = Handshake::start(Role::Client, b"key");
        assert!(handshake.finish(&hello).is_err());
    }
}
