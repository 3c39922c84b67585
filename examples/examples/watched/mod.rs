//! Channels whose descriptors the tokio runtime watches.
//!
//! sideway depends on no runtime. A channel is a file descriptor in non-blocking mode, which any runtime can watch;
//! this module is all the code required.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::async_event::{AsyncEvent, AsyncEventChannel};
use sideway::ibverbs::completion::{CompletionChannel, CompletionEvent};
use sideway::rdmacm::communication_manager::{Event, EventChannel};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The conditions that wake a future: an event, or the error that reports the removal of the device.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

/// A channel of events. It owns its descriptor, or a reference to the owner, so the descriptor stays open and
/// unchanged.
pub(crate) trait Channel: AsRawFd {
    /// The type of its events.
    type Event;

    /// Returns the next event, if one is pending.
    fn try_get(&self) -> Result<Option<Self::Event>>;
}

impl Channel for Arc<CompletionChannel> {
    type Event = CompletionEvent;

    fn try_get(&self) -> Result<Option<CompletionEvent>> {
        Ok(self.try_get_cq_event()?)
    }
}

impl Channel for AsyncEventChannel {
    type Event = AsyncEvent;

    fn try_get(&self) -> Result<Option<AsyncEvent>> {
        Ok(self.try_get_async_event()?)
    }
}

impl Channel for Arc<EventChannel> {
    type Event = Event;

    fn try_get(&self) -> Result<Option<Event>> {
        Ok(self.try_get_cm_event()?)
    }
}

/// The events of a channel as futures.
#[derive(Debug)]
pub(crate) struct Watched<C: Channel>(AsyncFd<C>);

impl<C: Channel> Watched<C> {
    /// Registers the channel with the runtime.
    pub(crate) fn new(channel: C) -> Result<Self> {
        // SAFETY: the three implementations of `Channel` keep the descriptor open and unchanged, and the watcher keeps
        // the channel.
        let watched = unsafe { AsyncFd::register_with_interest(channel, INTEREST) };
        Ok(Self(watched.map_err(io::Error::from).context("cannot register the channel with the runtime")?))
    }

    /// The next event. Dropping the future loses no event.
    pub(crate) async fn next(&self) -> Result<C::Event> {
        loop {
            let mut guard = self.0.ready(INTEREST).await?;
            match guard.get_inner().try_get()? {
                // The descriptor stays marked as ready, because more events may follow.
                Some(event) => return Ok(event),
                // The runtime reports only changes. An event after the attempt is a change, so no event is lost.
                None => guard.clear_ready(),
            }
        }
    }
}
