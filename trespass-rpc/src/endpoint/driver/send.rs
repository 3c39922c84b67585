//! Sends frames.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use trespass::{ConnectionId, Kind, Wait, Worker};

use crate::core::{BulkOperation, Connection};
use crate::error::{Certainty, RpcError, Status};
use crate::wire::{HEADER, header_bytes};

use super::super::Shared;
use super::super::state::{Call, State};
use super::tls::Session;
use super::{Driver, Entry};

/// Frames are combined into one message up to this number of bytes. It then is one SEND, which trespass neither divides
/// nor combines with others: a segment has 4 KiB over RDMA, and 16 KiB over TCP.
const PACK_RDMA: usize = 4 << 10;
const PACK_TCP: usize = 16 << 10;
/// Maximum length of a message that contains bytes of a `Memory`. The peer fetches such a message from this side's
/// buffer with a READ.
const PIECE: usize = 256 << 10;

impl Driver {
    /// Sends the pending frames of a link.
    pub(super) fn transmit(&mut self, index: u32) {
        let now = self.now;
        let Some(Some(Entry { link, id, tls, .. })) = self.links.get_mut(index as usize) else { return };
        let mut state = link.lock();
        state.is_dirty = false;
        let pack = if link.info.kind == Kind::Rdma { PACK_RDMA } else { PACK_TCP };
        let mut sent = send_frames(&mut self.worker, *id, tls, &mut state.core, pack, now);
        if sent.is_ok() && !state.jobs.is_empty() {
            sent = send_jobs(&mut self.worker, *id, tls, &mut state);
        }
        let failed = match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The mark prevents callers from queuing the link again before it is writable.
                state.is_dirty = true;
                self.worker.register(*id, Wait::Write, &writable(&self.shared, index));
                None
            }
            sent => sent.err(),
        };
        state.wake_room();
        state.looks_at = state.core.next_timeout();
        self.next = self.next.min(state.looks_at);
        drop(state);
        if let Some(error) = failed {
            // Before the link ends, the driver reads everything that the peer sent before the connection ended.
            while self.read(index) {}
            let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, error.to_string());
            self.end(index, failure, Status::UNAVAILABLE.0, "");
        }
    }
}

/// Sends the TLS records that wait to be sent.
fn send_records(worker: &mut Worker, id: ConnectionId, tls: &mut Option<Session>) -> io::Result<()> {
    tls.as_mut().map_or(Ok(()), |session| session.flush(|records| worker.try_send(id, records)))
}

/// Sends frames, until the connection is full (`WouldBlock`). During the TLS handshake there are no frames.
fn send_frames(
    worker: &mut Worker,
    id: ConnectionId,
    tls: &mut Option<Session>,
    core: &mut Connection<Call>,
    pack: usize,
    now: u64,
) -> io::Result<()> {
    loop {
        send_records(worker, id, tls)?;
        if tls.as_ref().is_some_and(Session::is_handshaking) {
            return Ok(());
        }
        let Some(frames) = core.poll_transmit(pack, now) else { return Ok(()) };
        match tls {
            Some(session) if session.seals() => session.seal(frames)?,
            _ => worker.try_send(id, frames)?,
        }
        let length = frames.len();
        core.transmitted(length, now);
    }
}

/// Sends parts of `Memory` objects in frames, until the connection returns `WouldBlock`.
fn send_jobs(worker: &mut Worker, id: ConnectionId, tls: &mut Option<Session>, state: &mut State) -> io::Result<()> {
    let State { core, jobs, later, .. } = state;
    while let Some(job) = jobs.front_mut() {
        send_records(worker, id, tls)?;
        // If the call has ended, its bytes are no longer needed.
        let is_live = job.done.as_ref().map_or_else(|| core.call(job.id).is_some(), |done| !done.is_closed());
        // TLS buffers the bytes that it encrypts, so the messages are kept short.
        let is_sealed = tls.as_ref().is_some_and(Session::seals);
        let length = job.rest.len().min(if is_sealed { PACK_TCP } else { PIECE } - HEADER);
        if is_live && length != 0 {
            let header = Connection::<Call>::bulk_header(job.id, job.index, BulkOperation::Data, job.offset);
            let mut message = worker.alloc(id, HEADER + length);
            message[..HEADER].copy_from_slice(&header_bytes(&header, 0, length));
            job.memory.read_at(job.rest.start, &mut message[HEADER..])?;
            match tls {
                Some(session) if session.seals() => session.seal(&message)?,
                _ => worker.try_send_buf(id, message).map_err(|(error, _)| error)?,
            }
            job.rest.start += length;
            job.offset += length as u64;
        }
        if (!is_live || job.rest.is_empty())
            && let Some(job) = jobs.pop_front()
            && let Some(done) = job.done
        {
            later.done.push(done);
        }
    }
    send_records(worker, id, tls)
}

/// Adds a link to the list of links with frames to send.
fn writable(shared: &Arc<Shared>, index: u32) -> Waker {
    struct Writable(Arc<Shared>, u32);

    impl std::task::Wake for Writable {
        fn wake(self: Arc<Self>) {
            self.0.poke(|signal| signal.dirty.push(self.1));
        }
    }

    Waker::from(Arc::new(Writable(Arc::clone(shared), index)))
}
