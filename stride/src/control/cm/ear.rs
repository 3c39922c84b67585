//! A file by which somebody who sleeps hears that a stream has something to be read.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

/// Several files as one, that can be read where one of them can; and where it was set so.
#[derive(Debug)]
pub(super) struct Ear {
    all: OwnedFd,
    own: OwnedFd,
    is_set: bool,
}

impl Ear {
    /// Of these files.
    pub(super) fn new(files: [BorrowedFd<'_>; 2]) -> io::Result<Self> {
        let all = epoll::create(CreateFlags::CLOEXEC)?;
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for file in files {
            epoll::add(&all, file, EventData::new_u64(0), EventFlags::IN)?;
        }
        epoll::add(&all, &own, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { all, own, is_set: false })
    }

    /// Whether it can be read whatever the files say.
    pub(super) fn set(&mut self, is_set: bool) {
        if is_set != self.is_set {
            // Neither fails: the number there is 1, or 0.
            let _ = match is_set {
                true => write(&self.own, &1_u64.to_ne_bytes()),
                false => read(&self.own, &mut [0; 8]),
            };
            self.is_set = is_set;
        }
    }

    /// The file.
    pub(super) fn file(&self) -> io::Result<OwnedFd> {
        self.all.try_clone()
    }
}
