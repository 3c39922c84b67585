//! Control frames.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};

/// The number of an entry of a transfer, from 1 in listing order; [`ROOT`] (0) is the destination.
pub type Id = u32;

/// The destination itself: the parent directory of the first entries.
pub const ROOT: Id = 0;

/// A control frame. Each variant's comment names the side that sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// From both sides: keepalive.
    Ping,
    /// From both sides, as the last frame: the transfer has failed.
    Abort(Failure),
    /// From the client, as the first frame: the purpose of the connection.
    Open(Purpose),
    /// From the server, as the first frame: the connection is accepted.
    Opened,
    /// From the source of a stream: all blocks were sent.
    StreamEnd(Totals),
    /// From the sink of a stream: all blocks have been written.
    StreamDone(Totals),
    /// From the source: entries of a directory.
    List {
        /// The directory.
        dir: Id,
        /// The entries. Their numbers continue those of the previous list.
        entries: Vec<Entry>,
        /// Whether the list is complete and without errors. Only then may the sink delete other entries.
        whole: bool,
    },
    /// From the source: the numbers and lengths of the files in the pack that follows.
    Pack(Vec<(Id, u32)>),
    /// From the source: all blocks of a file were sent, or the file could not be read.
    Close(Id, std::result::Result<(), Failure>),
    /// From the source: everything was sent.
    End(Totals),
    /// From the sink: how much the sink already has of each file for which the source has asked, in order.
    Have(Vec<(Id, Have)>),
    /// From the sink: an entry has failed, or a file for which the source has asked is complete.
    Result(Id, std::result::Result<(), Failure>),
    /// From the sink: the transfer is complete. The frame contains the totals.
    Report(Totals),
    /// From the source of a copy, as the first frame: the copy begins.
    Begin {
        /// Whether the connection continues an earlier copy. Files that are complete are then not sent again.
        again: bool,
        /// The later hosts of the chain. The sink connects to the first of them, and passes it the list of the others.
        chain: Vec<Peer>,
    },
    /// From the sink: a host of the chain is lost, so this connection ends.
    Lost(String, Failure),
    /// From the source of a stream, as the first frame: the stream begins or continues.
    StreamBegin {
        /// The random number of the stream.
        id: u128,
        /// Whether an earlier connection has begun the stream.
        again: bool,
    },
    /// From the sink of a stream: the bytes before this offset have arrived. The sink sends this frame as the answer to
    /// `StreamBegin`, and later to acknowledge blocks.
    StreamReceived(u64),
    /// From the source of a copy, before the lists: the directory whose entries are copied. Its name does not count.
    Top(Entry),
    /// From the source: hashes of the first blocks of a file, in order, as the answer to [`Have::Check`].
    Sums {
        /// The file.
        id: Id,
        /// The blocks. Between two of them, the file has a hole.
        sums: Vec<Sum>,
        /// Whether no more follow.
        last: bool,
    },
    /// From the sink: this path was removed, or would be. The host is empty for the sink itself.
    Removed {
        /// The host.
        host: String,
        /// The path.
        path: String,
    },
}

/// The hash of a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The offset of the block in the file, in bytes.
    pub offset: u64,
    /// The length of the block, in bytes.
    pub length: u32,
    /// XXH3-128 of the block.
    pub hash: u128,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The client sends.
    Send,
    /// The client receives.
    Receive,
}

/// A peer that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The name of the host, for messages.
    pub name: String,
    /// `host:port`, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// The peer's key.
    pub key: Vec<u8>,
}

impl Peer {
    /// A peer without a name, at one address (`host:port`).
    pub fn unnamed(address: String, key: &[u8]) -> Peer {
        Peer { name: String::new(), addresses: vec![address], key: key.to_vec() }
    }
}

/// How much of a file the sink already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Have {
    /// The bytes before this offset. If the offset is not 0, the source's hashes have proved them.
    Until(u64),
    /// An earlier run has left as many bytes. The source sends the hashes of its own bytes up to this offset, and the
    /// sink then answers again.
    Check(u64),
    /// The whole file: the source sends nothing.
    All,
}

/// Totals of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Entries of all kinds.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// Bytes of the files' blocks.
    pub bytes: u64,
    /// Entries that failed.
    pub failed: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name: one component.
    #[serde(with = "bytes")]
    pub name: Vec<u8>,
    /// The kind.
    pub kind: EntryKind,
    /// Permissions, and the set-user-ID, set-group-ID and sticky bits.
    pub mode: u16,
    /// User and group.
    pub owner: (u32, u32),
    /// Time of the last change: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// Extended attributes.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// The length of a file at the source, in bytes; 0 for other entries.
    pub fn size(&self) -> u64 {
        if let EntryKind::File { size, .. } = self.kind { size } else { 0 }
    }
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory, listed later.
    Directory,
    /// A regular file.
    File {
        /// The length in bytes.
        size: u64,
        /// Whether the file has other names (hard links), which may follow as [`EntryKind::Same`].
        has_links: bool,
        /// XXH3-128 of the contents, if the transfer compares them.
        sum: Option<u128>,
    },
    /// A symbolic link, with its target.
    Link(#[serde(with = "bytes")] Vec<u8>),
    /// Another name (hard link) of a file or of a special file that was listed before.
    Same(Id),
    /// A FIFO, a socket or a device node.
    Special {
        /// What it is.
        kind: Special,
        /// Whether it has other names (hard links), which may follow as [`EntryKind::Same`].
        has_links: bool,
    },
}

/// The kind of a special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// A socket in the file system.
    Socket,
    /// A character device, with its number.
    Character(u64),
    /// A block device, with its number.
    Block(u64),
}

/// The reason for a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The exit status that the failure causes; 0 for a broken connection, and 2 if an entry was skipped.
    pub status: u8,
    /// The host on which the operation failed; empty for the sender of the frame.
    pub host: String,
    /// The reason, as text.
    pub text: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let status = match error.kind() {
            _ if error.is_disconnect() => 0,
            Kind::Skipped => 2,
            _ => error.copy_status(),
        };
        let (host, text) = error.parts();
        Failure { status, host: host.to_owned(), text: text.to_owned() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let kind = match failure.status {
            0 => Kind::Broken,
            1 => Kind::Usage,
            2 => Kind::Skipped,
            23 => Kind::File,
            24 => Kind::Vanished,
            30 => Kind::TimedOut,
            128.. => Kind::Signal(failure.status - 128),
            _ => Kind::Protocol,
        };
        Error::new(kind, crate::error::escape(failure.text.as_ref())).on(&crate::error::escape(failure.host.as_ref()))
    }
}

impl Frame {
    /// Encodes the frame.
    pub fn emit(&self) -> Vec<u8> {
        // Serializing to a vector fails only for types that do not occur in this enum.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Parses a frame.
    ///
    /// # Errors
    ///
    /// The bytes are not exactly one frame.
    pub fn parse(bytes: &[u8]) -> Result<Frame> {
        match Frame::parse_first(bytes)? {
            (frame, []) => Ok(frame),
            _ => Err(malformed()),
        }
    }

    /// Parses the first of several frames. Also returns the bytes after it.
    ///
    /// # Errors
    ///
    /// The bytes begin with no frame.
    pub fn parse_first(bytes: &[u8]) -> Result<(Frame, &[u8])> {
        postcard::take_from_bytes(bytes).map_err(|_| malformed())
    }
}

fn malformed() -> Error {
    Error::protocol("the peer sent a malformed frame; install the same version on both sides")
}

/// Encodes a value as bytes instead of a sequence of numbers.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let failure = Failure { status: 23, host: "h".to_owned(), text: "cannot read a: is a directory".to_owned() };
        let entry = Entry {
            name: b"n\xffame".to_vec(),
            kind: EntryKind::Link(b"../target".to_vec()),
            mode: 0o644,
            owner: (1, 2),
            modified: (-5, 999_999_999),
            attributes: vec![(b"user.a".to_vec(), vec![0, 255])],
        };
        let top = Entry { kind: EntryKind::Directory, ..entry.clone() };
        let totals = Totals { entries: 3, files: 2, bytes: u64::MAX, failed: 1 };
        vec![
            Frame::Ping,
            Frame::Abort(failure.clone()),
            Frame::Open(Purpose::Receive),
            Frame::StreamEnd(totals),
            Frame::List {
                dir: 7,
                entries: vec![
                    entry.clone(),
                    Entry { kind: EntryKind::Same(3), ..entry.clone() },
                    Entry { kind: EntryKind::Special { kind: Special::Block(7), has_links: true }, ..entry },
                ],
                whole: true,
            },
            Frame::Pack(vec![(1, 2), (u32::MAX, 0)]),
            Frame::Close(9, Err(failure.clone())),
            Frame::Have(vec![(4, Have::Until(1 << 40)), (5, Have::All)]),
            Frame::Report(totals),
            Frame::Begin {
                again: true,
                chain: vec![Peer { name: "h2:/w".to_owned(), addresses: vec!["h2:1".to_owned()], key: vec![1; 32] }],
            },
            Frame::Lost("h2:/w".to_owned(), failure),
            Frame::StreamBegin { id: u128::MAX, again: true },
            Frame::StreamReceived(1 << 40),
            Frame::Top(top),
        ]
    }

    #[test]
    fn frames_survive_the_wire() {
        for frame in frames() {
            assert_eq!(Frame::parse(&frame.emit()).unwrap(), frame);
        }
    }

    #[test]
    fn cut_and_prolonged_frames_are_refused() {
        for frame in frames() {
            let bytes = frame.emit();
            for length in 0..bytes.len() {
                assert!(Frame::parse(&bytes[..length]).is_err(), "{frame:?} cut to {length}");
            }
            assert!(Frame::parse(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
    }

    #[test]
    fn length_fields_at_their_limits_are_refused_without_allocation() {
        // Tests frames with a list, a pack, answers or a report that announce 2^64 - 1 elements.
        for number in [6, 7, 10, 12, 13, 14, 1, 8] {
            let mut bytes = vec![number];
            bytes.extend([0xff; 9]);
            bytes.push(1);
            assert!(Frame::parse(&bytes).is_err());
            bytes.insert(1, 0);
            assert!(Frame::parse(&bytes).is_err());
        }
    }

    #[test]
    fn failure_of_the_peer_cannot_drive_the_terminal() {
        let error = Error::from(Failure { status: 23, host: "\u{7}h".to_owned(), text: "\u{1b}[2J".to_owned() });
        assert_eq!(error.to_string(), "\\u{7}h: \\u{1b}[2J");
    }
}
