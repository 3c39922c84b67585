//! Builds a list of requests, and posts it.

use std::collections::VecDeque;
use std::io;

use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, SendQueue, SetScatterGatherEntry, WorkRequestFlags};

use super::super::SIGNAL_EVERY;
use super::posted::{Outstanding, Posted};
use super::window::{Landed, Window};
use crate::backend::Request;
use crate::memory::{Buf, Pool};

/// A list of requests that has not been posted yet.
pub(super) struct Batch<'l> {
    pub(super) windows: &'l mut Vec<Window>,
    pub(super) posted: &'l mut Outstanding,
    pub(super) unbound: &'l mut usize,
    pub(super) number: u64,
    pub(super) unsignaled: &'l mut u32,
    /// Whether few completion queue entries are free, so that every request is signaled.
    pub(super) is_short: bool,
    pub(super) inline: usize,
    pub(super) pool: &'l Pool,
}

impl Batch<'_> {
    #[inline]
    pub(super) fn fill<Q: SendQueue<Service = Connected>>(
        &mut self,
        queue: &mut Q,
        requests: &mut VecDeque<Request>,
        room: usize,
        spare: &mut Vec<Buf>,
    ) -> io::Result<()> {
        let taken = self.bind(queue, room)?;
        let mut guard = queue.start_post_send();
        let count = requests.len().min(room - taken);
        // The last request that is posted. A revocation without a window, or of a window that is closing, is not.
        let last = match count.checked_sub(1) {
            Some(last) if !matches!(requests[last], Request::Send(_)) => {
                requests.iter().take(count).rposition(|request| self.posts(request))
            }
            last => last,
        };
        // Whether a request with a buffer follows the list's last signaled request.
        let mut holds = false;
        for index in 0..count {
            let Some(request) = requests.pop_front() else { break };
            let number = self.number | u64::from(self.posted.next);
            let is_last = last == Some(index);
            let mut flags = |waits: bool, holds: &mut bool| {
                *self.unsignaled += 1;
                if waits || self.is_short || *self.unsignaled >= SIGNAL_EVERY || is_last && *holds {
                    (*self.unsignaled, *holds) = (0, false);
                    return WorkRequestFlags::Signaled;
                }
                WorkRequestFlags::empty()
            };
            match request {
                Request::Send(buf) if buf.len() <= self.inline => {
                    let flags = flags(false, &mut holds);
                    guard.construct_wr(number, flags).setup_send().setup_inline_data(&buf);
                    spare.push(buf);
                    self.posted.push_inline();
                }
                Request::Send(buf) => {
                    let buf = own(self.pool, buf)?;
                    holds = true;
                    let flags = flags(false, &mut holds);
                    let request = guard.construct_wr(number, flags).setup_send();
                    // SAFETY: the buffer goes to `posted`.
                    unsafe { gather(request, &buf)? };
                    self.posted.push(Posted::Send(buf));
                }
                Request::Write { from, to } => {
                    let from = own(self.pool, from)?;
                    let flags = flags(true, &mut holds);
                    let request =
                        guard.construct_wr(number, flags).setup_write(RemoteKey::from_raw(to.key), to.address);
                    // SAFETY: the buffer goes to `posted`.
                    unsafe { gather(request, &from)? };
                    self.posted.push(Posted::Write(from));
                }
                Request::Read { token, into, from } => {
                    let flags = flags(true, &mut holds);
                    let key = RemoteKey::from_raw(from.key);
                    let request = guard.construct_wr(number, flags).setup_read(key, from.address);
                    // SAFETY: the buffer goes to `posted`.
                    unsafe { gather(request, &into)? };
                    self.posted.push(Posted::Read { token, into });
                }
                Request::Transfer(transfer) => {
                    holds = true;
                    let flags = flags(false, &mut holds);
                    let (lkey, local, length) = transfer.local();
                    let (address, key) = (transfer.remote.0, RemoteKey::from_raw(transfer.remote.1));
                    let request = guard.construct_wr(number, flags);
                    // SAFETY: the bytes are within the region, to which the transfer has a reference; the transfer
                    // stays in `posted` until the request has completed. Rust code accesses the bytes only by copying,
                    // or as the caller of `Connection::region_at` guarantees.
                    unsafe {
                        match transfer.is_put {
                            true => request.setup_write(key, address).setup_sge(lkey, local, length),
                            false => request.setup_read(key, address).setup_sge(lkey, local, length),
                        }
                    };
                    self.posted.push(Posted::Transfer(transfer));
                }
                // The windows were bound before this list.
                Request::Bind => {}
                Request::Probe => {
                    let flags = flags(true, &mut holds);
                    guard.construct_wr(number, flags).setup_write(RemoteKey::from_raw(0), 0).setup_no_data();
                    self.posted.push(Posted::Probe);
                }
                request @ (Request::Conceal(_) | Request::Revoke(_) | Request::Land { .. }) => {
                    let Some(index) = self.windows.iter().position(|window| window.is_for(&request)) else { continue };
                    let Some(window) = self.windows.get_mut(index).filter(|window| !window.is_closing) else {
                        continue;
                    };
                    if window.window.is_none() {
                        self.windows.swap_remove(index).held.into_iter().for_each(|held| held.release(spare));
                        continue;
                    }
                    window.is_closing = true;
                    holds = true;
                    let is_landed = if let Request::Land { token, length, .. } = request {
                        window.landed = Some(Landed { token, length });
                        true
                    } else {
                        false
                    };
                    let flags = flags(is_landed, &mut holds);
                    guard.construct_wr(number, flags).setup_local_inv(window.key);
                    self.posted.push(Posted::Invalidate(index));
                }
            }
        }
        guard.post().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Whether a request leads to one of the device.
    fn posts(&self, request: &Request) -> bool {
        match request {
            Request::Bind => false,
            Request::Conceal(_) | Request::Revoke(_) | Request::Land { .. } => {
                let window = self.windows.iter().find(|window| window.is_for(request));
                window.is_some_and(|window| window.window.is_some() && !window.is_closing)
            }
            _ => true,
        }
    }

    /// Posts the requests that bind the waiting memory windows, as one list. Returns the number of these requests.
    #[inline]
    fn bind<Q: SendQueue<Service = Connected>>(&mut self, queue: &mut Q, room: usize) -> io::Result<usize> {
        if *self.unbound == 0 {
            return Ok(0);
        }
        self.bind_all(queue, room)
    }

    #[cold]
    fn bind_all<Q: SendQueue<Service = Connected>>(&mut self, queue: &mut Q, room: usize) -> io::Result<usize> {
        let mut taken = 0;
        let mut guard = queue.start_post_send();
        let waiting = self.windows.iter_mut().enumerate().filter(|(_, window)| window.is_unbound);
        for (index, Window { window, key, held, is_unbound, .. }) in waiting.take(room) {
            *is_unbound = false;
            *self.unbound -= 1;
            let (Some(window), Some(held)) = (window, held) else { continue };
            let Some(region) = held.region() else { continue };
            let part = held.bind(region);
            let number = self.number | u64::from(self.posted.next);
            *self.unsignaled += 1;
            let flags = if self.is_short || *self.unsignaled >= SIGNAL_EVERY {
                *self.unsignaled = 0;
                WorkRequestFlags::Signaled
            } else {
                WorkRequestFlags::empty()
            };
            guard.construct_wr(number, flags).setup_bind_mw(window, *key, part);
            self.posted.push(Posted::Bind(index));
            taken += 1;
        }
        guard.post().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(taken)
    }
}

/// Returns a buffer of the pool with the bytes of `buf`: `buf` itself, or a copy.
#[inline]
fn own(pool: &Pool, buf: Buf) -> io::Result<Buf> {
    if pool.owns(&buf) { Ok(buf) } else { copy(pool, &buf) }
}

#[cold]
fn copy(pool: &Pool, bytes: &[u8]) -> io::Result<Buf> {
    let mut copy = pool.alloc(bytes.len()).ok_or(io::ErrorKind::OutOfMemory)?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

/// Adds a buffer's bytes to a request.
///
/// # Safety
///
/// The buffer stays allocated, and no reference to its bytes exists, until the request has completed or its queue pair
/// was destroyed. The caller puts the buffer into `posted`, which returns it only after that.
#[inline]
unsafe fn gather(request: impl SetScatterGatherEntry, buf: &Buf) -> io::Result<()> {
    let (Some(region), Ok(length)) = (buf.region(), u32::try_from(buf.len())) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the buffer is not registered with the device"));
    };
    // SAFETY: the bytes are within the region, which stays registered as long as the buffer; the caller guarantees the
    // rest.
    unsafe { request.setup_sge(region.lkey(), buf.as_ptr() as u64, length) };
    Ok(())
}
