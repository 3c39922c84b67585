//! Lets a thread sleep until a completion event arrives (`--events`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::{CompletionChannel, CompletionQueue};
use sideway::ibverbs::device_context::DeviceContext;

use crate::poll::{Done, Poll};
use crate::signal::Idle;

/// The longest time that a loop sleeps before it checks whether it has to stop.
pub(crate) const LONGEST: Duration = Duration::from_millis(20);

/// The completion events of a thread. The two completion queues of the thread share one event channel.
#[derive(Debug)]
pub struct CompletionEvents {
    channel: Arc<CompletionChannel>,
    /// Whether an event of each queue has been requested and has not arrived yet. The value is kept from one step to
    /// the next.
    is_requested: [AtomicBool; 2],
}

impl CompletionEvents {
    /// Creates the event channel.
    ///
    /// # Errors
    ///
    /// Returns an error if the device cannot create one.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Self> {
        let channel = context.create_comp_channel().context("--events: cannot create a completion event channel")?;
        Ok(Self { channel, is_requested: [AtomicBool::new(false), AtomicBool::new(false)] })
    }

    /// Returns the event channel with which the two queues are created. The queues must have the `cq_context` values 0
    /// and 1.
    pub fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    fn is_requested(&self, number: usize) -> &AtomicBool {
        // The two queues have the numbers 0 and 1.
        &self.is_requested[number & 1]
    }

    /// Sleeps until an event arrives, for at most `most`.
    fn wait(&self, most: Duration) -> Result<()> {
        match self.channel.get_cq_event(Some(most)) {
            Ok(event) => {
                self.is_requested(event.cq_context()).store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.errno().raw() == libc::ETIMEDOUT => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A completion queue for the loops. When the queue is empty, the loop either polls it again or waits for an event.
///
/// One type serves both cases, and it checks for events only after a poll has found nothing. With two types, the code
/// of all loops would be compiled twice.
#[derive(Debug)]
pub(crate) struct Waiting<'q, C> {
    queue: &'q mut C,
    events: Option<&'q CompletionEvents>,
}

impl<'q, C: CompletionQueue> Waiting<'q, C> {
    pub(crate) fn new(queue: &'q mut C, events: Option<&'q CompletionEvents>) -> Self {
        Self { queue, events }
    }

    /// Requests an event unless one has already been requested. Returns whether this call requested one.
    fn request(&self, events: &CompletionEvents) -> Result<bool> {
        let is_requested = events.is_requested(self.queue.cq_context());
        if is_requested.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.queue.req_notify(false)?;
        is_requested.store(true, Ordering::Relaxed);
        Ok(true)
    }

    #[cold]
    #[inline(never)]
    fn sleep(&self, events: &CompletionEvents, other: Option<&Self>, most: Duration) -> Result<bool> {
        let mut is_new = self.request(events)?;
        if let Some(other) = other {
            is_new |= other.request(events)?;
        }
        // No event is raised for a completion that arrived before the request, so the loop has to poll once more. Each
        // later completion raises an event.
        if !is_new {
            events.wait(most)?;
        }
        Ok(!is_new)
    }
}

impl<C: Poll + CompletionQueue> Poll for Waiting<'_, C> {
    #[inline(always)]
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32> {
        self.queue.poll(each)
    }

    #[inline(always)]
    fn rest(&mut self, other: Option<&Self>, most: impl FnOnce() -> Duration, idle: &mut Idle) -> Result<bool> {
        match self.events {
            None => self.queue.rest(None, most, idle),
            Some(events) => self.sleep(events, other, most()),
        }
    }
}
