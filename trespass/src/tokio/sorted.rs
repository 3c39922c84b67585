//! Messages and notifications, which arrive in one order and leave by two methods.

use std::collections::VecDeque;
use std::io;

use crate::memory::Buf;
use crate::worker::{Awaited, ConnectionId, Worker};

/// The number of notifications, or of messages, that may wait while the program reads the others.
const NUMBER: usize = 64;
/// The number of bytes of messages that may wait while the program reads notifications. One message may exceed it.
const BYTES: usize = 1 << 20;

/// What has been received of one kind while the program read the other kind. If one kind is full, the connection is not
/// read until the program has read of this kind, so a peer cannot fill the memory.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    messages: VecDeque<Buf>,
    bytes: usize,
    notifications: VecDeque<u64>,
}

impl Sorted {
    /// Returns the next message, or `WouldBlock`.
    pub(super) fn message(&mut self, worker: &mut Worker, id: ConnectionId) -> io::Result<Buf> {
        self.next(worker, id, |worker| worker.try_recv(id), Buf::notification, |message| message)
    }

    /// Returns the next message or `WouldBlock`. `receive` receives from the connection, `number` returns the number
    /// if that was a notification, and `of` converts a message that was received before.
    pub(super) fn next<T>(
        &mut self,
        worker: &mut Worker,
        id: ConnectionId,
        mut receive: impl FnMut(&mut Worker) -> io::Result<T>,
        number: impl Fn(&T) -> Option<u64>,
        of: impl FnOnce(Buf) -> T,
    ) -> io::Result<T> {
        let was_full = self.is_full();
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.len();
            // Tasks that wait for notifications did not read the connection.
            if was_full {
                worker.wake_calls(id, Awaited::Message);
            }
            return Ok(of(message));
        }
        while self.notifications.len() < NUMBER {
            let received = receive(worker)?;
            let Some(number) = number(&received) else { return Ok(received) };
            self.notifications.push_back(number);
            // The worker wakes tasks only for what it still has.
            worker.wake_calls(id, Awaited::Message);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Makes a message the next one again.
    pub(super) fn put_back(&mut self, message: Buf) {
        self.bytes += message.len();
        self.messages.push_front(message);
    }

    /// Returns the next notification, or `WouldBlock`.
    pub(super) fn notification(&mut self, worker: &mut Worker, id: ConnectionId) -> io::Result<u64> {
        let was_full = self.notifications.len() >= NUMBER;
        if let Some(number) = self.notifications.pop_front() {
            if was_full {
                worker.wake_calls(id, Awaited::Message);
            }
            return Ok(number);
        }
        while !self.is_full() {
            let received = worker.try_recv_aside(id)?;
            if let Some(number) = received.notification() {
                return Ok(number);
            }
            self.bytes += received.len();
            self.messages.push_back(received);
            worker.wake_calls(id, Awaited::Message);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= NUMBER || self.bytes >= BYTES
    }
}
