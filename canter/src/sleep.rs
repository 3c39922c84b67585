//! Sleeping until a completion, an event of the connection manager, or a wake-up of another thread.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use sideway::ibverbs::completion::CompletionChannel;

use crate::Error;
use crate::error::system;

/// The descriptors of a core, in one descriptor.
#[derive(Debug)]
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    channel: Arc<CompletionChannel>,
}

impl Sleeper {
    pub(crate) fn new(channel: Arc<CompletionChannel>) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let sleeper = Self { epoll, channel };
        sleeper.watch(sleeper.channel.as_fd())?;
        Ok(sleeper)
    }

    /// Adds a descriptor, which stays open as long as the core.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(fd.as_raw_fd() as u64);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN).map_err(failed)
    }

    /// Removes a descriptor that is readable all the time.
    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) {
        // It was added.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until a descriptor is readable. A signal may end the sleep early.
    pub(crate) fn sleep(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.channel.wait_readable([self.epoll.as_fd()], limit)?;
        Ok(())
    }

    /// Takes the events of the completion queue.
    pub(crate) fn drain(&self) -> Result<(), Error> {
        while self.channel.try_get_cq_event()?.is_some() {}
        Ok(())
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, Error> {
        self.epoll.try_clone().map_err(|error| system("dup", error))
    }
}

fn failed(error: rustix::io::Errno) -> Error {
    system("epoll", error)
}
