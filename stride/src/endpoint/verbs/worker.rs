//! What a thread of a test does before it begins.

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::endpoint::numa;
use crate::endpoint::port_info::PortInfo;

/// Has this thread, which is no other's, run on one of its processors, or on those near the device, with as cheap calls as can be.
pub(super) fn begin(facts: &PortInfo, near: &[u32], index: usize) {
    let own = facts.cpus.get(index % facts.cpus.len().max(1));
    let cpus = own.map_or(near, std::slice::from_ref);
    if !cpus.is_empty() {
        // It could when the side was opened.
        let _ = numa::run_on(cpus);
    }
    // softrnic opens files when it posts, which all threads are to have.
    if !facts.is_soft() {
        own_descriptors();
    }
}

/// Gives this thread a table of file descriptors of its own.
///
/// A device in the kernel's software is told of a post by a `write`, and who waits for events makes a `read`: in a program of several threads each
/// of them counts the file as in use, with atomic instructions, unless no other thread has the table.
///
/// What other threads close from then on stays open in the copy until this thread ends: who is to see the end of a connection at once needs a
/// shutdown of it.
fn own_descriptors() {
    // SAFETY: what this thread uses from here on, the device, the channels of its queues and what tells of its end, was opened before and is in its
    // copy, under the same numbers. It opens and closes nothing that another thread uses: queues and memory are the side's, which is another
    // thread's. A number that another thread closes and uses again means the old file here, which this thread never asks for by it: those it uses
    // stay open for as long as it runs. Where the kernel says no, the table is shared as before.
    let _ = unsafe { unshare_unsafe(UnshareFlags::FILES) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::thread;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn what_was_opened_before_is_there_and_what_a_thread_opens_is_its_own() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let opened = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                own_descriptors();
                writer.write_all(b"here").unwrap();
                let own = File::open("/dev/null").unwrap();
                std::fs::read_link(format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own))).unwrap()
            });
            thread.join().unwrap()
        });
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        assert_eq!((&text, opened.to_str()), (b"here", Some("/dev/null")));
        // The copy of the thread has ended with it: nobody holds the writing end any more.
        drop(writer);
        assert_eq!(reader.read(&mut text).unwrap(), 0);
    }
}
