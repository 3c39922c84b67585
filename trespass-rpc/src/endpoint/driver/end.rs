//! Ends links, enforces deadlines, and drains servers.

use std::io;
use std::mem;
use std::sync::Arc;

use crate::error::{Certainty, RpcError, Status};

use super::super::reply::wake;
use super::super::{Reply, driver_ended};
use super::Driver;
use super::tls::Session;

impl Driver {
    /// Ends a link together with its calls, its handlers and its connection.
    pub(super) fn end(&mut self, index: u32, failure: RpcError, code: u32, reason: &str) {
        let Some(mut entry) = self.links.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        let mut state = entry.link.lock();
        let error = match failure.status {
            Status::UNAUTHENTICATED => {
                let refused = RpcError { certainty: Certainty::NotSent, ..failure.clone() };
                io::Error::new(io::ErrorKind::PermissionDenied, refused)
            }
            _ => io::Error::new(io::ErrorKind::ConnectionAborted, failure.detail.to_string()),
        };
        state.fail(failure);
        let (serving, jobs) = (mem::take(&mut state.serving), mem::take(&mut state.jobs));
        let late_keys = mem::take(&mut state.late_keys);
        drop(state);
        drop((jobs, late_keys));
        for serving in serving.into_values() {
            let wakers = [serving.reader, serving.writer].into_iter().flatten();
            wakers.chain(serving.expected.into_wakers()).for_each(wake);
        }
        self.drop_ready(&entry.link, None);
        for (_, task) in entry.tasks.drain() {
            self.cancel(Some(task));
        }
        if let Some(ready) = entry.ready.take() {
            ready.send(Err(error));
        }
        self.worker.close(entry.id, code, reason);
        if let Some(runner) = entry.runner {
            self.free_runner(runner);
        }
    }

    pub(super) fn pass_time(&mut self, now: u64) {
        self.next = u64::MAX;
        let mut expired = mem::take(&mut self.expired);
        for index in 0..self.links.len() as u32 {
            let Some(Some(entry)) = self.links.get_mut(index as usize) else { continue };
            let (link, hello_until) = (Arc::clone(&entry.link), entry.hello_until);
            let mut state = link.lock();
            let outcome = state.on_time(now, &mut expired);
            state.wake_room();
            drop(state);
            for id in expired.drain(..) {
                let Some(Some(entry)) = self.links.get_mut(index as usize) else { continue };
                let task = entry.tasks.remove(&id);
                self.drop_ready(&link, Some(id));
                self.cancel(task);
                link.answer(id, Status::DEADLINE, false, &[]);
            }
            let late = now >= hello_until;
            self.next = self.next.min(hello_until);
            match outcome {
                Err(failure) => {
                    let reason = failure.detail.to_string();
                    self.end(index, failure, Status::UNAVAILABLE.0, &reason);
                }
                Ok(()) if late => {
                    let text = "the peer sent no hello";
                    let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, text);
                    self.end(index, failure, Status::UNAVAILABLE.0, text);
                }
                Ok(()) => self.transmit(index),
            }
        }
        self.expired = expired;
        self.connect();
        for connecting in &self.connecting {
            self.next = self.next.min(connecting.until);
        }
        self.check_drains(now);
    }

    pub(super) fn drain(&mut self, listener: u32, deadline: u64, reply: Reply<usize>) {
        let Some(listening) = self.listeners.get_mut(listener as usize) else { return };
        if let Some(id) = listening.id.take() {
            self.worker.unlisten(id);
        }
        listening.drain = Some((deadline, reply));
        for entry in self.links.iter().flatten().filter(|entry| entry.listener == Some(listener)) {
            entry.link.with(|state| state.core.go_away("the server is shutting down"));
        }
        self.check_drains(self.shared.now());
    }

    /// Ends connections of draining listeners. Before the deadline, only the connections without calls end; after it,
    /// all end.
    pub(super) fn check_drains(&mut self, now: u64) {
        /// Microseconds between two checks.
        const LOOK: u64 = 5_000;
        for number in 0..self.listeners.len() {
            let Some((deadline, _)) = &self.listeners[number].drain else { continue };
            let deadline = *deadline;
            let (mut left, mut busy, mut done) = (0, 0, Vec::new());
            for (index, entry) in self.links.iter().enumerate() {
                let Some(entry) = entry.as_ref().filter(|entry| entry.listener == Some(number as u32)) else {
                    continue;
                };
                // The peer has received all answers, or the connection is lost.
                let state = entry.link.lock();
                let is_sealed = entry.tls.as_ref().is_none_or(Session::is_flushed);
                let is_drained =
                    state.core.is_drained() && is_sealed && self.worker.is_flushed(entry.id).unwrap_or(true);
                let has_left = state.core.has_left();
                drop(state);
                left += usize::from(!is_drained);
                busy += usize::from(!is_drained || !has_left);
                if is_drained && has_left || now >= deadline {
                    done.push(index as u32);
                }
            }
            if busy != 0 && now < deadline {
                self.next = self.next.min(deadline).min(now + LOOK);
                continue;
            }
            for index in done {
                let failure = RpcError::new(Status::UNAVAILABLE, Certainty::Unknown, "the server has shut down");
                self.end(index, failure, Status::UNAVAILABLE.0, "the server has shut down");
            }
            self.free_runner(self.listeners[number].runner);
            if let Some((_, reply)) = self.listeners[number].drain.take() {
                reply.send(left);
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        self.shared.end();
        for index in 0..self.links.len() as u32 {
            self.end(index, driver_ended(), Status::UNAVAILABLE.0, "the peer's program has ended");
        }
        self.worker.flush();
    }
}
