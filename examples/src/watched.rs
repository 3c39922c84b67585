//! Channels whose descriptors the tokio runtime watches.
//!
//! The library knows of no runtime. A channel is a file descriptor in non-blocking mode, which any runtime can watch; this is all
//! that it takes.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::async_event::{AsyncEvent, AsyncEventChannel};
use sideway::ibverbs::completion::{CompletionChannel, CompletionEvent};
use sideway::rdmacm::communication_manager::{Event, EventChannel};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What to wake up for: events, and the error by which the kernel tells that the device is gone.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

/// Completion events as futures.
#[derive(Debug)]
pub struct CompletionEvents(AsyncFd<Arc<CompletionChannel>>);

impl CompletionEvents {
    /// Has the runtime watch the channel.
    ///
    /// # Errors
    ///
    /// The runtime does not.
    pub fn new(channel: Arc<CompletionChannel>) -> Result<Self> {
        // SAFETY: the descriptor is the channel's own, which keeps it open and the same; the watcher keeps the channel.
        let watched = unsafe { AsyncFd::register_with_interest(channel, INTEREST) };
        Ok(Self(watched.map_err(io::Error::from).context("the runtime does not watch the completion channel")?))
    }

    /// The next event. A future that is dropped has taken none.
    ///
    /// # Errors
    ///
    /// There will be no event any more.
    pub async fn next(&self) -> Result<CompletionEvent> {
        loop {
            let mut guard = self.0.ready(INTEREST).await?;
            match guard.get_inner().try_get_cq_event()? {
                // There may be more: the descriptor stays marked as ready.
                Some(event) => return Ok(event),
                // The runtime is told of changes only. From here on the next one counts; one that came since the attempt is not
                // lost.
                None => guard.clear_ready(),
            }
        }
    }
}

/// Asynchronous events as futures.
#[derive(Debug)]
pub struct AsyncEvents(AsyncFd<AsyncEventChannel>);

impl AsyncEvents {
    /// Has the runtime watch the device.
    ///
    /// # Errors
    ///
    /// The runtime does not.
    pub fn new(channel: AsyncEventChannel) -> Result<Self> {
        // SAFETY: the descriptor is that of the device context, which keeps it open and the same; the channel keeps the context.
        let watched = unsafe { AsyncFd::register_with_interest(channel, INTEREST) };
        Ok(Self(watched.map_err(io::Error::from).context("the runtime does not watch the device")?))
    }

    /// The next event. A future that is dropped has taken none.
    ///
    /// # Errors
    ///
    /// There will be no event any more.
    pub async fn next(&self) -> Result<AsyncEvent> {
        loop {
            let mut guard = self.0.ready(INTEREST).await?;
            match guard.get_inner().try_get_async_event()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}

/// Events of the connection manager as futures.
#[derive(Debug)]
pub struct ConnectionEvents(AsyncFd<Arc<EventChannel>>);

impl ConnectionEvents {
    /// Has the runtime watch the channel.
    ///
    /// # Errors
    ///
    /// The runtime does not.
    pub fn new(channel: Arc<EventChannel>) -> Result<Self> {
        // SAFETY: the descriptor is the channel's own, which keeps it open and the same; the watcher keeps the channel.
        let watched = unsafe { AsyncFd::register_with_interest(channel, INTEREST) };
        Ok(Self(watched.map_err(io::Error::from).context("the runtime does not watch the event channel")?))
    }

    /// The next event. A future that is dropped has taken none.
    ///
    /// # Errors
    ///
    /// There will be no event any more.
    pub async fn next(&self) -> Result<Event> {
        loop {
            let mut guard = self.0.ready(INTEREST).await?;
            match guard.get_inner().try_get_cm_event()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}
