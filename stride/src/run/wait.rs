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
        let channel = context.create_comp_channel().context("--events: no channel for completion events")?;
        Ok(Self { channel, is_asked: [AtomicBool::new(false), AtomicBool::new(false)] })
    }

    /// The channel, which the queues are made with. Their contexts are their numbers, 0 and 1.
    pub(crate) fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// One of the thread's queues, where it sleeps.
    pub(crate) fn at<'q, C: CompletionQueue>(&'q self, queue: &'q mut C) -> Sleeping<'q, C> {
        Sleeping { queue, bell: self }
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

/// A completion queue at which a thread sleeps while nothing is there.
#[derive(Debug)]
pub(crate) struct Sleeping<'q, C> {
    queue: &'q mut C,
    bell: &'q Bell,
}

impl<C: CompletionQueue> Sleeping<'_, C> {
    /// Asks for an event, unless one is on its way; whether it was asked for now.
    fn ask(&self) -> Result<bool> {
        let is_asked = self.bell.is_asked(self.queue.cq_context());
        if is_asked.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.queue.req_notify(false)?;
        is_asked.store(true, Ordering::Relaxed);
        Ok(true)
    }
}

impl<C: Poll + CompletionQueue> Poll for Sleeping<'_, C> {
    fn poll(&mut self, each: impl FnMut(Done)) -> Result<u32> {
        self.queue.poll(each)
    }

    fn rest(&mut self, other: Option<&Self>, most: impl FnOnce() -> Duration, _: &mut Idle) -> Result<bool> {
        let mut is_new = self.ask()?;
        if let Some(other) = other {
            is_new |= other.ask()?;
        }
        // What came before an event was asked for raises none: the loop looks once more. From then on whatever comes does.
        if !is_new {
            self.bell.wait(most())?;
        }
        Ok(!is_new)
    }
}
