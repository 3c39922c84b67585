//! Transmits bytes, and handles time-outs.

use crate::error::{Certainty, RpcError, Status};
use crate::wire::{Flags, Frame, Header, Kind, write};

use super::Connection;

impl<C> Connection<C> {
    /// Returns the number of bytes that wait to be sent.
    pub(super) fn backlog(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Returns the time at which to call [`Connection::on_time`] next.
    pub fn next_timeout(&self) -> u64 {
        if self.failure.is_some() {
            return u64::MAX;
        }
        let keepalive = match self.ping_sent {
            Some(at) => at.saturating_add(self.keepalive.saturating_mul(2)),
            None => self.heard_at.saturating_add(self.keepalive),
        };
        let stall = if self.backlog() == 0 { u64::MAX } else { self.progress_at.saturating_add(self.stall) };
        self.calls.earliest().min(self.serving.earliest()).min(keepalive).min(stall)
    }

    /// Handles all time-outs that are due. Calls of this side whose deadline has passed end with an error; the driver
    /// must answer the peer's requests whose deadline has passed.
    ///
    /// # Errors
    ///
    /// The peer has sent or received nothing for too long; the connection must end.
    pub fn on_time(
        &mut self,
        now: u64,
        mut each: impl FnMut(&mut C, RpcError),
        expired: &mut Vec<u32>,
    ) -> Result<(), RpcError> {
        if self.failure.is_some() {
            return Ok(());
        }
        let unavailable = |text| Err(RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, text));
        if self.backlog() != 0 && now >= self.progress_at.saturating_add(self.stall) {
            return unavailable("the peer does not read");
        }
        match self.ping_sent {
            // If this process was suspended, it sent no ping that the peer could have answered, so it sends one now.
            None if now >= self.heard_at.saturating_add(self.keepalive) => {
                self.ping_sent = Some(now);
                self.ping();
            }
            Some(at) if now >= at.saturating_add(self.keepalive.saturating_mul(2)) => {
                return unavailable("the peer is silent");
            }
            _ => {}
        }
        let out = &mut self.out;
        let checksum = self.limits.checksum;
        self.calls.expire(now, |id, data, is_sent| {
            let certainty = if is_sent { Certainty::Unknown } else { Certainty::NotSent };
            each(data, RpcError::new(Status::DEADLINE, certainty, ""));
            if is_sent {
                let flags = Flags(if checksum { Flags::CHECKSUM } else { 0 });
                write(out, &Header { flags, ..Header::new(Kind::Cancel, id) }, &[], &[]);
            }
        });
        self.serving.expire(now, expired);
        self.release(now);
        Ok(())
    }

    /// Returns whole frames to send: at most `most` bytes, unless the first frame is longer.
    pub fn poll_transmit(&mut self, most: usize, now: u64) -> Option<&[u8]> {
        if let Some(ping) = self.pong_due.take() {
            self.frame(Header { method: ping, ..Header::new(Kind::Pong, 0) }, &[], &[]);
        }
        let rest = &self.out[self.sent..];
        if rest.is_empty() {
            self.progress_at = now;
            return None;
        }
        if rest.len() <= most {
            return Some(rest);
        }
        let mut end = 0;
        while end < rest.len() {
            let length = frame_length(&rest[end..]);
            if end != 0 && end + length > most {
                break;
            }
            end += length;
        }
        Some(&rest[..end.min(rest.len())])
    }

    /// Whether any bytes wait to be sent.
    pub fn wants_transmit(&self) -> bool {
        self.pong_due.is_some() || self.out.len() != self.sent
    }

    /// Records that bytes returned by [`Connection::poll_transmit`] were sent.
    pub fn transmitted(&mut self, bytes: usize, now: u64) {
        self.sent += bytes;
        self.left += bytes as u64;
        self.progress_at = now;
        self.serving.transmitted(self.left);
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
            // An idle connection does not keep the memory that a large answer needed.
            self.out.shrink_to(64 << 10);
        } else if self.sent > 1 << 20 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

/// Returns the length of the first frame in these bytes, which this side has encoded.
fn frame_length(frames: &[u8]) -> usize {
    Frame::split(frames).map_or(frames.len(), |(_, rest)| frames.len() - rest.len())
}
