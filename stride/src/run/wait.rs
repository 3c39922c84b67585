//! Sleeping until a completion event comes, where a thread does not poll on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use sideway::ibverbs::completion::{CompletionChannel, CompletionQueue};
use sideway::ibverbs::device_context::DeviceContext;

use super::poll::{Done, Poll};
use super::signal::Idle;

/// The longest sleep, after which a loop looks whether it is to stop.
pub(crate) const LONGEST: Duration = Duration::from_millis(20);

/// What wakes a thread: the channel of its two completion queues.
#[derive(Debug)]
pub(crate) struct Bell {
    channel: Arc<CompletionChannel>,
    /// By the number of a queue: an event was asked for and is not taken. It stays so from one step to the next.
    is_asked: [AtomicBool; 2],
}

impl Bell {
    pub(crate) fn new(context: &Arc<DeviceContext>) -> Result<Self> {
        let channel = context.create_comp_channel().context("--events: cannot create a completion event channel")?;
        Ok(Self { channel, is_asked: [AtomicBool::new(false), AtomicBool::new(false)] })
    }

    /// The channel, which the queues are made with. Their contexts are their numbers, 0 and 1.
    pub(crate) fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    fn is_asked(&self, number: usize) -> &AtomicBool {
        // There are two.
        &self.is_asked[number & 1]
    }

    /// Sleeps until an event comes, or the time is over.
    fn wait(&self, most: Duration) -> Result<()> {
        match self.channel.get_cq_event(Some(most)) {
            Ok(event) => {
                self.is_asked(event.cq_context()).store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.errno().raw() == libc::ETIMEDOUT => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A completion queue whose thread polls, or sleeps while it is empty if it has a bell.
///
/// One type has both, and looks for the bell only if a poll finds nothing: a type for each would double the code of all loops.
#[derive(Debug)]
pub(crate) struct Waiting<'q, C> {
    queue: &'q mut C,
    bell: Option<&'q Bell>,
}

impl<'q, C: CompletionQueue> Waiting<'q, C> {
    pub(crate) fn new(queue: &'q mut C, bell: Option<&'q Bell>) -> Self {
        Self { queue, bell }
    }

    /// Requests an event, unless one is outstanding; whether this call has requested it.
    fn ask(&self, bell: &Bell) -> Result<bool> {
        let is_asked = bell.is_asked(self.queue.cq_context());
        if is_asked.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.queue.req_notify(false)?;
        is_asked.store(true, Ordering::Relaxed);
        Ok(true)
    }

    #[cold]
    #[inline(never)]
    fn sleep(&self, bell: &Bell, other: Option<&Self>, most: Duration) -> Result<bool> {
        let mut is_new = self.ask(bell)?;
        if let Some(other) = other {
            is_new |= other.ask(bell)?;
        }
        // A completion from before the request raises no event: the loop polls once more. Each later one does.
        if !is_new {
            bell.wait(most)?;
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
        match self.bell {
            None => self.queue.rest(None, most, idle),
            Some(bell) => self.sleep(bell, other, most()),
        }
    }
}
