//! The operations that a program performs on a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::backend::{Backend, RegionPart};
use crate::memory::{self, Buf, Progress, RegionMemory, Transfer};
use crate::proto::{Place, Placed, Protocol, Received, Remote, Request};

use super::{ConnectionId, Kind, Stats, Worker, now};

impl Worker {
    /// Sends a copy of a message.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if more bytes than the high-water mark wait to be sent; otherwise the reason why the connection
    /// accepts no message.
    #[inline]
    pub fn try_send(&mut self, id: ConnectionId, message: &[u8]) -> io::Result<()> {
        on!(self, id, driver => driver.send(id.link, message))
    }

    /// Sends a notification, which arrives after the transfers that were started before. See [`Buf::notification`].
    ///
    /// # Errors
    ///
    /// See [`Worker::try_send`].
    pub fn try_notify(&mut self, id: ConnectionId, number: u64) -> io::Result<()> {
        on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.whole().notify(number, stock)))
    }

    /// Sends a message from a buffer of [`Worker::alloc`], without copying it.
    ///
    /// # Errors
    ///
    /// See [`Worker::try_send`]; the error returns the buffer.
    pub fn try_send_buf(&mut self, id: ConnectionId, message: Buf) -> Result<(), (io::Error, Buf)> {
        let mut kept = Some(message);
        let mut failed = None;
        let result = on!(self, id, driver => driver.with(id.link, |protocol, stock, backend| {
            let Some(message) = kept.take() else { return Ok(()) };
            protocol.whole().try_send_buf(message, stock, |message| backend.expose(id.link, message)).map_err(|(error, message)| {
                failed = Some(message);
                error
            })
        }));
        result.map_err(|error| (error, kept.or(failed).unwrap_or_else(|| Buf::on_heap(0))))
    }

    /// Returns the next message.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none yet, `UnexpectedEof` after the last one; otherwise the reason why the connection
    /// ended.
    #[inline]
    pub fn try_recv(&mut self, id: ConnectionId) -> io::Result<Buf> {
        let received = on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.try_recv(stock)));
        match received? {
            Received::Message(message) => Ok(message),
            Received::Empty => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Copies the next message into `out`, and returns its length.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the message is longer than `out`: the message stays queued, and the error text contains its
    /// length. Otherwise see [`Worker::try_recv`].
    #[inline]
    pub fn try_recv_into(&mut self, id: ConnectionId, out: &mut [u8]) -> io::Result<usize> {
        let received = on!(self, id, driver => {
            driver.with(id.link, |protocol, stock, _| protocol.try_recv_into(out, stock))
        });
        received?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends bytes of a stream. Returns the number of bytes that were accepted.
    ///
    /// # Errors
    ///
    /// See [`Worker::try_send`].
    #[inline]
    pub fn try_write(&mut self, id: ConnectionId, bytes: &[u8]) -> io::Result<usize> {
        on!(self, id, driver => driver.with(id.link, |protocol, stock, backend| {
            protocol.whole().write(bytes, stock, |message| backend.expose(id.link, message))
        }))
    }

    /// Receives bytes of a stream. Returns their number, which is 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no bytes have arrived; otherwise the reason why the connection ended.
    #[inline]
    pub fn try_read(&mut self, id: ConnectionId, bytes: &mut [u8]) -> io::Result<usize> {
        let read = on!(self, id, driver => driver.read(id.link, bytes));
        read?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Receives bytes of a stream in the memory into which they have arrived. Returns `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// See [`Worker::try_read`].
    pub(crate) fn try_take(&mut self, id: ConnectionId) -> io::Result<Option<Buf>> {
        let taken = on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.take_chunk(stock)));
        match taken? {
            Received::Message(bytes) => Ok(Some(bytes)),
            Received::Empty => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Ok(None),
        }
    }

    /// Does the same as `try_read`. The memory may be uninitialised.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_read_to(&mut self, id: ConnectionId, bytes: &mut impl bytes::BufMut) -> io::Result<usize> {
        let read = on!(self, id, driver => driver.read_to(id.link, bytes));
        read?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Allocates a buffer for [`Worker::try_send_buf`]. It is in the pool of the connection's transport, or on the heap
    /// if that pool is exhausted.
    pub fn alloc(&mut self, id: ConnectionId, length: usize) -> Buf {
        let pool = self.verbs.get(id.device).map_or_else(|| self.tcp.backend.pool(), |verbs| verbs.backend.pool());
        pool.alloc(length).unwrap_or_else(|| Buf::on_heap(length))
    }

    /// Sets the high-water mark of one connection: see [`Options::send_high_water`](crate::Options::send_high_water).
    pub(crate) fn set_send_buffer(&mut self, id: ConnectionId, bytes: usize) -> io::Result<()> {
        on!(self, id, driver => driver.with(id.link, |protocol, _, _| {
            protocol.whole().set_send_high_water(bytes);
            Ok(())
        }))
    }

    /// Ends this side's sending. The connection can still receive.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no memory for the frame that signals the end.
    pub fn shutdown(&mut self, id: ConnectionId) -> io::Result<()> {
        on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.whole().shutdown(stock)))
    }

    /// Returns whether the peer's NIC has received everything that was sent.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended, if it has ended already.
    pub fn is_flushed(&mut self, id: ConnectionId) -> io::Result<bool> {
        on!(self, id, driver => driver.with(id.link, |protocol, _, _| protocol.whole().flushed()))
    }

    /// Releases a connection. Messages that were sent still arrive, within the linger time. Received messages are
    /// dropped.
    pub fn close(&mut self, id: ConnectionId, code: u32, reason: &str) {
        self.fallbacks.remove(&id);
        self.pass_time();
        _ = on!(self, id, driver => {
            driver.forget(id.link, code, reason);
            driver.flush();
            Ok::<_, io::Error>(())
        });
    }

    /// Closes a connection without releasing it. [`Worker::outcome`] returns the result.
    pub(crate) fn begin_close(&mut self, id: ConnectionId, code: u32, reason: &str) {
        self.pass_time();
        let now = now();
        // A connection that is not established, or has failed, needs no close.
        _ = on!(self, id, driver => driver.with(id.link, |protocol, stock, _| {
            protocol.whole().close(code, reason, now, stock);
            Ok(())
        }));
    }

    /// Returns how a connection has ended. Before its end, returns `WouldBlock`.
    pub(crate) fn outcome(&mut self, id: ConnectionId) -> io::Result<()> {
        on!(self, id, driver => driver.get(id.link)?.outcome())
    }

    /// Returns the object that registers regions for a connection.
    pub(crate) fn region_domain(&self, id: ConnectionId) -> io::Result<memory::Domain> {
        self.verbs
            .get(id.device)
            .and_then(|verbs| verbs.backend.domain())
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the connection uses TCP, which has no regions"))
    }

    /// Grants the peer of a connection access to a part of a region.
    pub(crate) fn grant(&mut self, id: ConnectionId, part: RegionPart) -> io::Result<Remote> {
        on!(self, id, driver => driver.with(id.link, |protocol, _, backend| {
            let remote = backend.grant(id.link, part)?;
            protocol.whole().granted();
            Ok(remote)
        }))
    }

    /// Revokes a key. After the connection has ended, the key is already invalid.
    pub(crate) fn revoke(&mut self, id: ConnectionId, closed: &Arc<Progress>) {
        self.request(id, [Request::Revoke(Arc::clone(closed))])
            .unwrap_or_else(|error| rdma_mummy_sys::log!(debug, "{error}"));
    }

    /// Does the same as `try_recv`, unless a call waits to receive the next message in a region.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_recv_aside(&mut self, id: ConnectionId) -> io::Result<Buf> {
        if let Some(verbs) = self.verbs.get_mut(id.device)
            && verbs.look(id.link, Protocol::is_for_a_region)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.try_recv(id)
    }

    /// Receives the next message in a region, or in a buffer. After `WouldBlock`, the call goes on with the same place.
    pub(crate) fn try_recv_into_region(&mut self, id: ConnectionId, place: &Place) -> io::Result<Placed> {
        // TCP has no regions.
        if id.kind() == Kind::Tcp {
            return self.try_recv(id).map(Placed::Buffer);
        }
        self.check_device(id, place.region())?;
        if let Some(verbs) = self.verbs.get_mut(id.device)
            && verbs.look(id.link, |protocol, stock| protocol.is_for_another(place, stock))
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let placed =
            on!(self, id, driver => driver.with(id.link, |protocol, stock, _| protocol.try_place(place, stock)));
        placed?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns an error if a region does not belong to the device of a connection.
    fn check_device(&self, id: ConnectionId, region: &RegionMemory) -> io::Result<()> {
        self.verbs.get(id.device).map_or(Ok(()), |verbs| verbs.backend.check_device_of(region))
    }

    /// Passes one-sided transfers to a connection's link.
    pub(crate) fn transfer(&mut self, id: ConnectionId, transfers: Vec<Transfer>) -> io::Result<()> {
        transfers.iter().try_for_each(|transfer| self.check_device(id, transfer.region()))?;
        on!(self, id, driver => driver.with(id.link, |protocol, _, _| protocol.whole().transfer(transfers)))
    }

    fn request(&mut self, id: ConnectionId, requests: impl IntoIterator<Item = Request>) -> io::Result<()> {
        on!(self, id, driver => driver.with(id.link, |protocol, _, _| protocol.whole().request(requests)))
    }

    /// Returns the code and the reason that the peer passed when it closed the connection.
    pub fn peer_close(&mut self, id: ConnectionId) -> Option<(u32, String)> {
        let closed = |protocol: &Protocol| Ok(protocol.peer_close().map(|(code, reason)| (code, reason.to_owned())));
        on!(self, id, driver => driver.get(id.link).and_then(closed)).ok().flatten()
    }

    /// Posts queued sends without processing events.
    #[inline]
    pub fn flush(&mut self) {
        if self.verbs.any(super::Driver::has_work) {
            self.verbs.iter_mut().for_each(super::Driver::flush);
        }
        if self.tcp.has_work() {
            self.tcp.flush();
        }
    }

    /// Returns the local address of a connection, and the address of its peer.
    pub fn addresses(&self, id: ConnectionId) -> io::Result<(SocketAddr, SocketAddr)> {
        let facts = self.slot(id).and_then(|slot| slot.facts.as_ref());
        facts.map(|facts| (facts.local, facts.peer)).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the numbers of a connection's two queue pairs: first that of this side, then that of the peer, which is
    /// 0 if the device does not report it. Returns `None` over TCP and over iWARP, whose packets do not contain these
    /// numbers.
    pub fn queue_pairs(&mut self, id: ConnectionId) -> Option<(u32, u32)> {
        self.verbs.get_mut(id.device)?.backend.queue_pairs(id.link)
    }

    /// The transport and the traffic counters of a connection.
    pub fn stats(&mut self, id: ConnectionId) -> io::Result<Stats> {
        let counters = on!(self, id, driver => driver.get(id.link).map(|protocol| protocol.counters()))?;
        let path = self.slot(id).and_then(|slot| slot.facts.as_ref()).map(|facts| facts.path.clone());
        Ok(Stats {
            transport: id.kind(),
            path: path.unwrap_or_default(),
            fallback: self.fallbacks.get(&id).cloned(),
            sends: counters.sends,
            receives: counters.receives,
            rendezvous_sent: counters.rendezvous_sent,
            rendezvous_received: counters.rendezvous_received,
        })
    }
}
