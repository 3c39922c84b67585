//! A connection that waits for what completes, and notices when it ends.

use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::rdmacm::Connection;
use sideway_examples::{Timeout, wait_readable};

use super::endpoint::Endpoint;
use super::message::{Bytes, Place};

/// A connection to `peer`.
#[derive(Debug)]
pub(crate) struct Link {
    endpoint: Endpoint,
    connection: Connection,
    /// Who the other side is.
    peer: &'static str,
    timeout: Timeout,
}

impl Link {
    /// The endpoint is that of the connection.
    pub(crate) fn new(endpoint: Endpoint, connection: Connection, peer: &'static str, timeout: Timeout) -> Self {
        Self { endpoint, connection, peer, timeout }
    }

    /// Sends a message as soon as the last one has left.
    pub(crate) fn send(&mut self, message: &Bytes) -> Result<()> {
        self.need(format_args!("take the last message"), |endpoint| endpoint.has_sent().then_some(()))?;
        self.endpoint.send(message)
    }

    /// Waits for the next message, by which the peer tells that it has done `what`; `None` when it has ended the connection.
    pub(crate) fn hear(&mut self, what: fmt::Arguments<'_>) -> Result<Option<Bytes>> {
        self.wait(what, Endpoint::take_message)
    }

    /// Reads `length` bytes of the peer's.
    pub(crate) fn read(&mut self, from: &Place, length: u32, text: OwnedMemoryRegion) -> Result<OwnedMemoryRegion> {
        self.endpoint.read(from, length, text)?;
        self.need(format_args!("let its text be read"), Endpoint::take_text)
    }

    /// Writes `length` bytes to the peer.
    pub(crate) fn write(&mut self, to: &Place, length: u32, text: OwnedMemoryRegion) -> Result<OwnedMemoryRegion> {
        self.endpoint.write(to, length, text)?;
        self.need(format_args!("let its text be written"), Endpoint::take_text)
    }

    /// Ends the connection, or answers the peer that has ended it.
    pub(crate) fn close(self) -> Result<()> {
        self.connection.disconnect(self.timeout.0)?;
        Ok(())
    }

    /// The same as [`wait`](Self::wait) of what has to come.
    fn need<T>(&mut self, what: fmt::Arguments<'_>, take: impl FnMut(&mut Endpoint) -> Option<T>) -> Result<T> {
        match self.wait(what, take)? {
            Some(taken) => Ok(taken),
            None => bail!("the {} has ended the connection and did not {what}: see what it says", self.peer),
        }
    }

    /// Waits until `take` finds something in what has completed; `None` when the connection has ended before.
    fn wait<T>(
        &mut self,
        what: fmt::Arguments<'_>,
        mut take: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = self.timeout.0.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let is_last = deadline.is_some_and(|deadline| deadline <= Instant::now());
            // What completes behind this raises an event, and what came before the end is found behind it.
            self.endpoint.take_events()?;
            self.endpoint.notify()?;
            let has_ended = self.connection.ended()?.is_some();
            self.endpoint.poll()?;
            if let Some(taken) = take(&mut self.endpoint) {
                return Ok(Some(taken));
            }
            if has_ended {
                return Ok(None);
            }
            if self.endpoint.is_stopped() {
                bail!(
                    "the device has stopped the connection: the {} asked for memory that it was not offered, or this side did",
                    self.peer
                );
            }
            if is_last {
                let seconds = self.timeout.0.unwrap_or(Duration::ZERO).as_secs_f64();
                bail!("the {} did not {what} within {seconds} s (--timeout): does it still run?", self.peer);
            }
            let events = self.connection.event_channel();
            wait_readable([self.endpoint.as_fd(), events.as_fd()], deadline).context("waiting for the device")?;
        }
    }
}
