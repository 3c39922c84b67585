//! Attachments and targets: bytes of a call that are transferred without a copy over RDMA.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use trespass::RegionKey;

use crate::body::Body;
use crate::endpoint::{Link, Local};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::{Memory, STAGE};
use crate::wire::{Bulk, BulkKind};

/// Maximum length of an attachment that is sent within the request.
pub(crate) const INLINE: usize = 8 << 10;

/// Bytes that a caller passes to a handler. Over RDMA, the handler's device reads them from the caller's memory with
/// one READ; over TCP they are copied.
#[derive(Debug)]
pub struct Attachment(Source);

#[derive(Debug)]
enum Source {
    /// An attachment on the caller's side.
    Bytes(Body),
    Memory(Memory, Range<usize>),
    /// An attachment on the handler's side.
    Inline(Body),
    Remote(Box<Remote>),
}

/// Memory of a caller that a handler fills: over RDMA with one WRITE, over TCP by copying.
#[derive(Debug)]
pub struct Target(Sink);

#[derive(Debug)]
enum Sink {
    Memory(Memory, Range<usize>),
    Remote(Box<Remote>),
}

/// An attachment or a target in the peer's memory.
#[derive(Clone)]
struct Remote {
    link: Arc<Link>,
    id: u32,
    index: usize,
    length: u64,
    /// `None` if the bytes are sent in frames.
    key: Option<RegionKey>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Attachment {
    /// Creates an attachment from a range of a `Memory`.
    ///
    /// # Errors
    ///
    /// The range is not within the memory.
    pub fn of(memory: &Memory, range: Range<usize>) -> io::Result<Self> {
        let range = memory.within(range.start, range.len())?;
        Ok(Self(Source::Memory(memory.clone(), range)))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Bytes(bytes) | Source::Inline(bytes) => bytes.len() as u64,
            Source::Memory(_, range) => range.len() as u64,
            Source::Remote(remote) => remote.length,
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads bytes of the attachment into `part` of a `Memory`, beginning at the offset `from` of the attachment.
    ///
    /// # Errors
    ///
    /// The requested bytes exceed the attachment, `part` exceeds the memory, the caller has cancelled the call, or the
    /// connection has ended.
    pub async fn read_into(&self, from: u64, memory: &Memory, part: Range<usize>) -> io::Result<()> {
        let part = memory.within(part.start, part.len())?;
        check(from, part.len(), self.len())?;
        let _turn = self.turn(part.len()).await;
        self.fill(from, memory, part).await
    }

    /// Waits until the handler may request the bytes of a remote attachment.
    async fn turn(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        match &self.0 {
            Source::Remote(remote) => remote.link.turn_to_read(length).await,
            _ => None,
        }
    }

    async fn fill(&self, from: u64, memory: &Memory, part: Range<usize>) -> io::Result<()> {
        match &self.0 {
            Source::Bytes(bytes) | Source::Inline(bytes) => {
                memory.write_at(part.start, &bytes[from as usize..from as usize + part.len()])
            }
            Source::Memory(source, range) => source.copy_to(range.start + from as usize, memory, part),
            Source::Remote(_) if part.is_empty() => Ok(()),
            Source::Remote(remote) => match (&remote.key, memory.region()) {
                (Some(key), Some(_)) => {
                    remote.link.transfer(remote.id, false, (memory, part), (*key, from))?.end().await
                }
                (Some(key), None) => remote.in_parts(false, (*key, from), memory, part).await,
                (None, _) => remote.link.pull(remote.id, remote.index, from, memory, part).await,
            },
        }
    }

    /// Reads all bytes into memory from the connection's pool.
    ///
    /// The handlers of one connection together read at most 4 MiB at a time, or one attachment that is longer. Other
    /// reads wait. If fewer than 64 KiB arrive in 200 ms, for example because a handler does not poll its read, the
    /// handlers begin to read another 4 MiB, and after further such stalls more.
    ///
    /// Over RDMA the memory is registered while all such memory of the endpoint takes at most
    /// [`Options::watermark`](crate::Options::watermark) bytes, and that of the connection half as much. Beyond this, the
    /// bytes are read in parts, of which the connection has 1 MiB in flight, and copied to memory on the heap, which grows
    /// as they arrive. To read longer attachments
    /// without a copy, use [`Context::alloc`](crate::Context::alloc) and [`Attachment::read_into`].
    ///
    /// # Errors
    ///
    /// See [`Attachment::read_into`]; `OutOfMemory` if the pool cannot allocate.
    pub async fn read(&self) -> io::Result<Memory> {
        let length = usize::try_from(self.len()).map_err(io::Error::other)?;
        // The memory is allocated only after the wait, so that waiting handlers use none.
        let _turn = self.turn(length).await;
        let memory = match &self.0 {
            Source::Memory(memory, range) if range.len() == memory.len() => return Ok(memory.clone()),
            Source::Remote(remote) => {
                let link = &remote.link;
                // Without a key the bytes come in frames, for which memory need not be registered.
                let takes = remote.key.is_some() || link.memory.registrar().is_none();
                let memory = takes.then(|| link.memory.announced(length, &link.budget)).flatten();
                match memory {
                    Some(memory) => memory,
                    None => link.heap.arriving(length)?,
                }
            }
            _ => Memory::on_heap(length),
        };
        self.fill(0, &memory, 0..length).await?;
        Ok(memory)
    }

    /// Copies all bytes into a vector.
    ///
    /// # Errors
    ///
    /// See [`Attachment::read`].
    pub async fn to_vec(&self) -> io::Result<Vec<u8>> {
        match &self.0 {
            Source::Bytes(bytes) | Source::Inline(bytes) => Ok(bytes.to_vec()),
            _ => self.read().await?.to_vec(),
        }
    }

    /// Returns what this side needs for the attachment of a call. If the attachment is short, appends its bytes to the
    /// body of the request.
    pub(crate) fn local(self, link: &Link, body: &mut Body) -> Result<Local, RpcError> {
        let failed = |error: io::Error| RpcError::new(Status::INTERNAL, Certainty::NotSent, error.to_string());
        match self.0 {
            Source::Bytes(bytes) | Source::Inline(bytes) if bytes.len() <= INLINE => {
                body.writer().extend_from_slice(&bytes);
                Ok(Local::inline(bytes.len()))
            }
            Source::Bytes(bytes) | Source::Inline(bytes) => {
                let memory = link.memory.alloc(bytes.len()).map_err(failed)?;
                memory.write_at(0, &bytes).map_err(failed)?;
                Ok(Local::new(memory, 0..bytes.len(), false))
            }
            Source::Memory(memory, range) => {
                if range.len() <= INLINE {
                    let out = body.writer();
                    let begin = out.len();
                    out.resize(begin + range.len(), 0);
                    if memory.read_at(range.start, &mut out[begin..]).is_ok() {
                        return Ok(Local::inline(range.len()));
                    }
                    // Memory of a GPU cannot be sent inline, because only the device can read it.
                    out.truncate(begin);
                }
                Ok(Local::new(memory, range, false))
            }
            Source::Remote(_) => {
                let text = "an attachment of a request cannot be used in another call; read it into memory first";
                Err(RpcError::new(Status::INVALID, Certainty::NotSent, text))
            }
        }
    }

    pub(crate) fn inline(bytes: Body) -> Self {
        Self(Source::Inline(bytes))
    }

    pub(crate) fn remote(link: &Arc<Link>, id: u32, index: usize, bulk: &Bulk) -> Self {
        Self(Source::Remote(Box::new(Remote::new(link, id, index, bulk))))
    }
}

impl From<Vec<u8>> for Attachment {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Source::Bytes(bytes.into()))
    }
}

impl From<&[u8]> for Attachment {
    fn from(bytes: &[u8]) -> Self {
        Self(Source::Bytes(Body::copy(bytes)))
    }
}

impl Target {
    /// Creates a target from a part of a `Memory`.
    ///
    /// # Errors
    ///
    /// The range is not within the memory.
    pub fn of(memory: &Memory, range: Range<usize>) -> io::Result<Self> {
        let range = memory.within(range.start, range.len())?;
        Ok(Self(Sink::Memory(memory.clone(), range)))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Sink::Memory(_, range) => range.len() as u64,
            Sink::Remote(remote) => remote.length,
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes bytes to the target, beginning at the offset `at` of the target.
    ///
    /// # Errors
    ///
    /// The bytes are not within the target, the caller has cancelled the call, or the connection has ended.
    pub async fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        check(at, bytes.len(), self.len())?;
        match &self.0 {
            Sink::Memory(memory, range) => memory.write_at(range.start + at as usize, bytes),
            Sink::Remote(remote) if bytes.len() <= INLINE => remote.link.push(remote.id, remote.index, at, bytes),
            Sink::Remote(remote) => {
                let memory = remote.link.memory.alloc(bytes.len())?;
                memory.write_at(0, bytes)?;
                self.write_from(at, &memory, 0..bytes.len()).await
            }
        }
    }

    /// Writes `part` of a `Memory` to the target, beginning at the offset `at` of the target.
    ///
    /// # Errors
    ///
    /// See [`Target::write`].
    pub async fn write_from(&self, at: u64, memory: &Memory, part: Range<usize>) -> io::Result<()> {
        let part = memory.within(part.start, part.len())?;
        check(at, part.len(), self.len())?;
        match &self.0 {
            Sink::Memory(own, range) => {
                let to = range.start + at as usize;
                memory.copy_to(part.start, own, to..to + part.len())
            }
            Sink::Remote(_) if part.is_empty() => Ok(()),
            Sink::Remote(remote) => match (&remote.key, memory.region()) {
                (Some(key), Some(_)) => remote.link.transfer(remote.id, true, (memory, part), (*key, at))?.end().await,
                (Some(key), None) => remote.in_parts(true, (*key, at), memory, part).await,
                (None, _) => remote.link.send_memory(remote.id, remote.index, at, memory, part).await,
            },
        }
    }

    pub(crate) fn local(self) -> Result<Local, RpcError> {
        match self.0 {
            Sink::Memory(memory, range) => Ok(Local::new(memory, range, true)),
            Sink::Remote(_) => {
                let text = "a target of a request cannot be used in another call; use a target of your own memory";
                Err(RpcError::new(Status::INVALID, Certainty::NotSent, text))
            }
        }
    }

    pub(crate) fn remote(link: &Arc<Link>, id: u32, index: usize, bulk: &Bulk) -> Self {
        Self(Sink::Remote(Box::new(Remote::new(link, id, index, bulk))))
    }
}

impl Remote {
    fn new(link: &Arc<Link>, id: u32, index: usize, bulk: &Bulk) -> Self {
        let is_writable = bulk.kind == BulkKind::Write;
        let has_key = is_writable || bulk.kind == BulkKind::Read;
        let key = has_key.then(|| RegionKey::from_parts(bulk.address, bulk.length, bulk.key, is_writable));
        Self { link: Arc::clone(link), id, index, length: bulk.length, key }
    }

    /// Transfers bytes between memory that is not registered and the peer's, by way of parts that are. The transfers of the
    /// connection use these parts in turn. While one is copied, the device transfers the others.
    async fn in_parts(
        &self,
        is_put: bool,
        (key, from): (RegionKey, u64),
        memory: &Memory,
        part: Range<usize>,
    ) -> io::Result<()> {
        let mut starts = part.clone().step_by(STAGE).peekable();
        let mut flying = VecDeque::new();
        loop {
            while let Some(&start) = starts.peek() {
                // A handler that has parts does not wait for further ones, so that handlers do not wait for each other.
                let stage = match self.link.try_stage() {
                    Some(stage) => stage?,
                    None if flying.is_empty() => self.link.wait_for_stage().await?,
                    None => break,
                };
                starts.next();
                let length = STAGE.min(part.end - start);
                if is_put {
                    memory.copy_to(start, &stage, 0..length)?;
                }
                let offset = from + (start - part.start) as u64;
                let transferring = self.link.transfer(self.id, is_put, (&stage, 0..length), (key, offset))?;
                flying.push_back((transferring, stage, start..start + length));
            }
            let Some((transferring, stage, range)) = flying.pop_front() else { return Ok(()) };
            transferring.end().await?;
            self.link.stage.advance(range.len());
            if !is_put {
                stage.copy_to(0, memory, range)?;
            }
        }
    }
}

fn check(offset: u64, length: usize, whole: u64) -> io::Result<()> {
    if offset.checked_add(length as u64).is_some_and(|end| end <= whole) {
        return Ok(());
    }
    let text = format!("{length} bytes at offset {offset} exceed the length of {whole} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
