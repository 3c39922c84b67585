//! The first frame of each side.

use super::WireError;

/// Length of the fields with fixed offsets.
const FIXED: usize = 48;
/// Maximum number of methods in a hello.
const METHODS: usize = 4096;

/// The macro's description of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodInfo {
    /// `Service/method`.
    pub name: &'static str,
    /// Hash of the name.
    pub id: u64,
    /// Hash of the types of the arguments and the result, as they are written in the source.
    pub shape: u64,
    /// Whether the method is idempotent.
    pub is_idempotent: bool,
}

/// A method that the peer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMethod {
    /// Hash of the name.
    pub id: u64,
    /// Hash of the types.
    pub shape: u64,
    /// `Service/method`.
    pub name: String,
}

/// The limits and credits that a side grants to its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest and the newest supported version.
    pub versions: (u16, u16),
    /// Number of calls that the peer may have in flight.
    pub calls: u32,
    /// Total bytes of requests that the peer may have in flight.
    pub bytes: u32,
    /// Maximum number of bytes in the body of a request, an answer or an item.
    pub body: u32,
    /// How many bytes of items the peer may send on a stream before the program takes them.
    pub window: u32,
    /// Maximum number of bytes of an attachment or a target.
    pub attachment: u64,
    /// A random number, which is different for each connection.
    pub nonce: u64,
    /// The numbers of this side and of its peer: those of their queue pairs, or over iWARP the CRC32C of their addresses.
    /// A number is 0 if it is unknown, or over TCP.
    pub ends: (u32, u32),
    /// The methods that this side serves.
    pub methods: Vec<PeerMethod>,
}

impl Hello {
    /// Encodes the body. Its first fields are two versions of 2 bytes each, then calls, bytes, body and window of 4
    /// bytes each, then attachment and nonce of 8 bytes each, then the numbers of both sides and the number of methods
    /// of 4 bytes each. The fields of each method follow: its hash and its shape of 8 bytes each, the length of
    /// its name in one byte, and its name.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.methods.len() * 48);
        bytes.extend_from_slice(&self.versions.0.to_le_bytes());
        bytes.extend_from_slice(&self.versions.1.to_le_bytes());
        for number in [self.calls, self.bytes, self.body, self.window] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.attachment.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.to_le_bytes());
        bytes.extend_from_slice(&self.ends.0.to_le_bytes());
        bytes.extend_from_slice(&self.ends.1.to_le_bytes());
        let count = self.methods.len().min(METHODS);
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        for method in &self.methods[..count] {
            bytes.extend_from_slice(&method.id.to_le_bytes());
            bytes.extend_from_slice(&method.shape.to_le_bytes());
            let name = &method.name.as_bytes()[..method.name.len().min(255)];
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name);
        }
        bytes
    }

    /// Decodes a hello. Bytes after the methods are ignored: later versions may define them.
    ///
    /// # Errors
    ///
    /// [`WireError`]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut rest = bytes;
        let mut take = |length| {
            let (part, after) = rest.split_at_checked(length).ok_or(WireError::Short(bytes.len(), FIXED))?;
            rest = after;
            Ok(part)
        };
        let number = |part: &[u8]| part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let mut hello = Self {
            versions: (number(take(2)?) as u16, number(take(2)?) as u16),
            calls: number(take(4)?) as u32,
            bytes: number(take(4)?) as u32,
            body: number(take(4)?) as u32,
            window: number(take(4)?) as u32,
            attachment: number(take(8)?),
            nonce: number(take(8)?),
            ends: (number(take(4)?) as u32, number(take(4)?) as u32),
            methods: Vec::new(),
        };
        let count = number(take(4)?) as usize;
        if count > METHODS {
            return Err(WireError::Field("number of methods"));
        }
        if hello.calls == 0 || hello.window == 0 {
            return Err(WireError::Field("credit"));
        }
        for _ in 0..count {
            let (id, shape) = (number(take(8)?), number(take(8)?));
            let length = number(take(1)?) as usize;
            let name = String::from_utf8_lossy(take(length)?).into_owned();
            hello.methods.push(PeerMethod { id, shape, name });
        }
        Ok(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_survives_the_round_trip_and_any_cut() {
        let methods = vec![PeerMethod { id: 1, shape: 2, name: "Kv/get".to_owned() }];
        let hello = Hello {
            versions: (1, 3),
            calls: 256,
            bytes: 1 << 22,
            body: 1 << 20,
            window: 1 << 16,
            attachment: 1 << 30,
            nonce: 42,
            ends: (17, 18),
            methods,
        };
        let bytes = hello.to_bytes();
        assert_eq!(Hello::parse(&bytes).unwrap(), hello);
        for length in 0..bytes.len() {
            assert!(Hello::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut many = bytes;
        many[FIXED - 1] = 0xff;
        assert!(Hello::parse(&many).is_err());
    }
}
