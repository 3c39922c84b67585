//! Connections: requests, messages, and the end.

mod batch;
mod posting;
mod recv;
mod unconnected;

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use sideway::ibverbs::queue_pair::GenericQueuePair;

pub use self::batch::Batch;
use self::posting::Posting;
use self::recv::Recv;
pub use self::unconnected::Unconnected;
use crate::Error;
use crate::cm::Inbox;
use crate::core::{Core, Inner};
use crate::link::Link;
use crate::memory::{Buf, Remote};
use crate::message::Message;
use crate::request::{Atomic, Held, Operation, Request};

/// A reliable connection of a [`Core`]. Clones are the same connection, which ends when the last clone is dropped.
///
/// Each request is a future, which posts the request when it is first polled, and completes when the device reports
/// that the peer's device has the data (over iWARP: that this side's device has accepted them). If the send queue is full, the future waits for its turn. **Dropping a future
/// is always safe**: if the request was not posted, it never is; if it was posted, it may still take effect, and its
/// buffer returns to its pool when the device has finished with it. If a request fails, its connection ends, and all
/// futures of the connection fail; the buffers return to their pools.
///
/// ```
/// # fn main() -> Result<(), canter::Error> {
/// use std::net::SocketAddr;
///
/// use canter::{Core, Remote, Rights};
///
/// let core = Core::builder("soft0").build()?;
/// core.run(async {
///     let mut listener = core.listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
///     let address = listener.local_addr();
///
///     // A client of the same core; usually it is another program. It reads the server's memory.
///     let own = core.clone();
///     let client = core.spawn(async move {
///         let connection = own.connect(address, b"").await?;
///         let bytes = connection.private_data().first_chunk().expect("the server sends 20 bytes");
///         let buf = own.pool(7, 1)?.get().await;
///         let read = connection.read(buf, Remote::from_bytes(bytes).slice(0, 7)?).await?;
///         Ok::<_, canter::Error>(read.to_vec())
///     });
///
///     let mut exposed = core.expose(4096, Rights::Read)?;
///     exposed.write_at(0, b"read me")?;
///     let request = listener.accept().await?;
///     let connection = core.accept(request, &exposed.remote().to_bytes()).await?;
///     assert_eq!(client.await??, b"read me");
///     assert!(connection.recv().await?.is_none()); // the client has ended
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Connection {
    pub(crate) shared: Rc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) link: Rc<Link>,
    /// Its events, which end the connection when the peer does.
    inbox: Option<Rc<Inbox>>,
}

impl Connection {
    /// Makes a queue pair a connection. This comes before its connection with the peer, which may send at once.
    pub(crate) fn new(core: &Core, qp: GenericQueuePair, inbox: Option<Rc<Inbox>>) -> Self {
        let id = inbox.as_ref().map(|inbox| Arc::clone(&inbox.id));
        let link = core.inner.add(Link::new(qp, id, core.inner.depth()));
        Self { shared: Rc::new(Shared { core: core.clone(), link, inbox }) }
    }

    /// The peer is there, and sent this private data.
    pub(crate) fn established(self, private_data: Vec<u8>) -> Self {
        let Shared { core, link, inbox } = &*self.shared;
        // It is established once.
        let _ = link.private_data.set(private_data);
        if let Some(inbox) = inbox {
            inbox.belongs_to(link, |link, cause| core.inner.end_in_order(link, cause));
        }
        self
    }

    /// Sends a message. The peer receives it with [`recv`](Self::recv).
    ///
    /// # Errors
    ///
    /// As for all requests: [`Error::Request`] if the device or the peer's refused it, [`Error::Closed`] if the
    /// connection had ended before, [`Error::Post`] if the device did not accept it, and [`Error::OtherCore`] if the
    /// buffer belongs to another core.
    pub async fn send(&self, buf: Buf) -> Result<Buf, Error> {
        self.one(Operation::Send, buf).await
    }

    /// Sends a message with 4 bytes of immediate data ([`Message::imm`]).
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub async fn send_imm(&self, buf: Buf, imm: u32) -> Result<Buf, Error> {
        self.one(Operation::SendImm(imm), buf).await
    }

    /// Writes the buffer to the peer's memory. The peer's program does not learn of it.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), and [`Error::OutOfRange`] if the peer's memory is smaller than the buffer's length.
    pub async fn write(&self, buf: Buf, remote: Remote) -> Result<Buf, Error> {
        let target = remote.holds(buf.len())?;
        self.one(Operation::Write(target), buf).await
    }

    /// Writes the buffer to the peer's memory. The peer then receives an empty [`Message`] with the immediate data. Not
    /// over iWARP.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub async fn write_imm(&self, buf: Buf, remote: Remote, imm: u32) -> Result<Buf, Error> {
        let target = remote.holds(buf.len())?;
        self.one(Operation::WriteImm(target, imm), buf).await
    }

    /// Reads the peer's memory into the buffer, as many bytes as the buffer's length.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub async fn read(&self, buf: Buf, remote: Remote) -> Result<Buf, Error> {
        let target = remote.holds(buf.len())?;
        let mut buf = self.one(Operation::Read(target), buf).await?;
        buf.land();
        Ok(buf)
    }

    /// Replaces 8 bytes of the peer with `new` if they equal `expected`. Returns the bytes before. The number is in the
    /// peer's memory in the byte order of its host. Not over iWARP.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write), and [`Error::Unaligned`].
    pub async fn compare_and_swap(&self, remote: Remote, expected: u64, new: u64) -> Result<u64, Error> {
        let target = remote.word()?;
        self.word(Atomic::CompareSwap { target, expected, new }).await
    }

    /// Adds to 8 bytes of the peer, and wraps. Returns the number before. Not over iWARP.
    ///
    /// # Errors
    ///
    /// As for [`compare_and_swap`](Self::compare_and_swap).
    pub async fn fetch_add(&self, remote: Remote, add: u64) -> Result<u64, Error> {
        let target = remote.word()?;
        self.word(Atomic::FetchAdd { target, add }).await
    }

    /// Posts all requests of a batch at once, and waits until all have completed. Their buffers are then in
    /// [`Batch::drain`]. If the future is dropped, the batch is empty.
    ///
    /// # Errors
    ///
    /// As for the requests, and [`Error::BatchTooLong`] if they exceed the send queue. A batch that was not posted, because
    /// it is too long or exceeds the peer's memory, keeps its requests until [`Batch::drain`]; another one is then empty.
    pub async fn submit(&self, batch: &mut Batch) -> Result<(), Error> {
        let requests = batch.take(self.shared.link.depth)?;
        if !requests.is_empty() {
            batch.finish(Posting::new(self, Held::Many(requests), Held::many).await?);
        }
        Ok(())
    }

    /// Receives the next message, or `None` after the connection has ended and all messages were received. A peer also ends
    /// it by being killed or by a failed request of its own, so `None` is no proof that the peer had finished: a protocol
    /// that must know ends with a message.
    /// Dropping the future loses no message.
    ///
    /// A peer that is killed also ends the connection, but one whose host fails or whose network is cut does not: a side
    /// that only receives waits without end. Use [`Core::timeout`], or write to the peer now and then.
    ///
    /// # Errors
    ///
    /// What ended the connection at this side, unless it was closed.
    pub async fn recv(&self) -> Result<Option<Message>, Error> {
        Recv::new(self).await
    }

    /// Ends the connection, which counts for [`Builder::connections`](crate::Builder::connections) until its last clone is
    /// dropped. The peer's [`recv`](Self::recv) returns `None` after the messages that it has. A message
    /// whose [`send`](Self::send) has completed is not lost, except over iWARP.
    pub fn close(&self) {
        self.inner().end_now(&self.shared.link, Error::Closed);
    }

    /// Returns the private data of the peer: of its request, or of its reply. InfiniBand and RoCE append zeros.
    pub fn private_data(&self) -> &[u8] {
        self.shared.link.private_data.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the peer's address, of a connection by address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.shared.link.id.as_ref()?.peer_address()
    }

    #[inline]
    fn inner(&self) -> &Inner {
        &self.shared.core.inner
    }

    #[inline]
    fn one(&self, operation: Operation, buf: Buf) -> Posting<'_, Buf> {
        Posting::new(self, Held::One(Request { operation, buf }), Held::one)
    }

    async fn word(&self, operation: Atomic) -> Result<u64, Error> {
        let buf = self.inner().words.get().await;
        let buf = Posting::new(self, Held::Atomic(operation, buf), Held::one).await?;
        let mut word = [0; 8];
        word.copy_from_slice(&buf);
        Ok(u64::from_ne_bytes(word))
    }
}

impl Drop for Shared {
    /// Ends the connection. The device's access to the buffers of its requests ends with the queue pair.
    fn drop(&mut self) {
        let (inner, mut wakers) = (&self.core.inner, Vec::new());
        inner.end(&self.link, Error::Closed, &mut wakers);
        inner.retire(&self.link);
        wakers.into_iter().for_each(Waker::wake);
        let unread = std::mem::take(&mut *self.link.inbox.borrow_mut());
        drop(unread);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = &self.shared.link;
        f.debug_struct("Connection")
            .field("qp_number", &link.number)
            .field("peer", &self.peer_addr())
            .field("end", &link.end())
            .finish()
    }
}
