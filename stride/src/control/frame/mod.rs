//! Frames, each of which carries one message of the control channel.
//!
//! ```text
//! bytes  0..8   magic
//!        8..10  version of the protocol, big-endian, as all numbers
//!       10..12  kind of the message
//!       12..16  length of what follows
//!       16..    JSON
//! ```
//!
//! The header and the first message, [`Hello`](super::message::Hello), are the same in all versions, so that different
//! versions can report their mismatch.

use std::io;

use super::wire::{Deadline, Wire, read_some, write_all};

/// The protocol version.
///
/// In version 2, receivers of an unreliable transport began to report arrivals. In version 3, failures got a class, and
/// the description of queue pairs got the inline limit and the kind of receiver. The sides began to exchange counters,
/// and a server that sends alone began to report intervals. In version 4, two members of the plan were renamed: they
/// are now `uses_rdma_cm` and `sleeps_on_events`.
pub const PROTOCOL: u16 = 4;

/// The magic bytes. The first byte is not a text character. The last byte reveals a gateway that converts line ends,
/// because such a gateway would change it.
pub(super) const MAGIC: [u8; 8] = *b"\x93stride\n";

/// Maximum message length in bytes.
pub(super) const LONGEST: u32 = 8 << 20;

/// Header length in bytes.
const HEADER: usize = 16;

/// An encoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The sender's protocol version.
    pub(crate) protocol: u16,
    /// The kind of message.
    pub(crate) kind: u16,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

/// The reason why no frame could be read.
#[derive(Debug)]
pub(crate) enum Unframed {
    /// The stream ended within a frame, after this number of bytes.
    End(usize),
    /// The data does not start with the magic.
    Foreign(Vec<u8>),
    /// The length exceeds the limit.
    Long(u32),
    /// The stream returned this error.
    Io(io::Error),
}

impl From<io::Error> for Unframed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Frame {
    /// Returns the bytes of the frame.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let length = u32::try_from(self.body.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "message too long"))?;
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(MAGIC);
        bytes.extend(self.protocol.to_be_bytes());
        bytes.extend(self.kind.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(&self.body);
        Ok(bytes)
    }

    /// Writes the frame.
    pub(super) fn write(&self, wire: &mut dyn Wire, deadline: Deadline) -> io::Result<()> {
        write_all(wire, &self.bytes()?, deadline)
    }

    /// Reads a frame.
    pub(super) fn read(wire: &mut dyn Wire, deadline: Deadline) -> Result<Self, Unframed> {
        let mut partial = Partial::new(LONGEST);
        loop {
            if let Some(frame) = partial.read(|into| read_some(wire, into, deadline))? {
                return Ok(frame);
            }
        }
    }
}

/// The part of a frame that has arrived. The buffer grows with the bytes that arrive, so a large announced length alone
/// uses no memory.
#[derive(Debug)]
pub(crate) struct Partial {
    bytes: Vec<u8>,
    longest: u32,
}

impl Partial {
    /// Expects a frame whose body has at most `longest` bytes.
    pub(crate) fn new(longest: u32) -> Self {
        Self { bytes: Vec::new(), longest }
    }

    /// Calls `read` once, with a slice that ends within the frame. Returns the frame if it is complete.
    pub(crate) fn read(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Option<Frame>, Unframed> {
        let mut part = [0; 4096];
        let most = part.len().min(self.length()? - self.bytes.len());
        match read(part.get_mut(..most).unwrap_or_default())? {
            0 => return Err(Unframed::End(self.bytes.len())),
            count => self.bytes.extend(part.iter().take(count)),
        }
        let start = self.bytes.get(..self.bytes.len().min(MAGIC.len())).unwrap_or_default();
        if !MAGIC.starts_with(start) {
            return Err(Unframed::Foreign(std::mem::take(&mut self.bytes)));
        }
        if self.bytes.len() < self.length()? {
            return Ok(None);
        }
        let mut body = std::mem::take(&mut self.bytes);
        let number = |at: usize| [at, at + 1].map(|at| body.get(at).copied().unwrap_or_default());
        let (protocol, kind) = (u16::from_be_bytes(number(8)), u16::from_be_bytes(number(10)));
        drop(body.drain(..HEADER));
        Ok(Some(Frame { protocol, kind, body }))
    }

    /// Returns the length of the frame, or of its header until the header is complete.
    fn length(&self) -> Result<usize, Unframed> {
        let Some([.., l0, l1, l2, l3]) = self.bytes.first_chunk::<HEADER>() else { return Ok(HEADER) };
        let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]);
        if length > self.longest { Err(Unframed::Long(length)) } else { Ok(HEADER + length as usize) }
    }
}

/// Returns which other program the peer is, judging by the first bytes that it sent.
pub(super) fn speaker(bytes: &[u8]) -> String {
    let starts = |start: &str| bytes.starts_with(start.as_bytes());
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let major = digits(bytes);
    let minor = bytes.get(major + 1..).map_or(0, digits);
    if major > 0 && minor > 0 && bytes.get(major) == Some(&b'.') {
        let version = String::from_utf8_lossy(bytes.get(..=major + minor).unwrap_or_default());
        return format!("perftest {version}; run stride-perf on both sides");
    }
    for (start, what) in [
        ("HTTP/", "a web server"),
        ("GET ", "a web client"),
        ("POST ", "a web client"),
        ("HEAD ", "a web client"),
        ("CONNECT ", "a web client"),
        ("SSH-", "SSH"),
        ("\x16\x03", "TLS"),
    ] {
        if starts(start) {
            return format!("{what}; check the port");
        }
    }
    format!("not stride-perf (its data begins with \"{}\"); check the port", bytes.escape_ascii())
}

#[cfg(test)]
mod tests;
