//! Prepares a worker thread before its step.

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::endpoint::numa;
use crate::endpoint::port_info::PortInfo;

/// Returns the processors of a thread, which are its own, or otherwise those near the device. The list is empty if the
/// system chooses.
pub(super) fn processors<'p>(port_info: &'p PortInfo, near: &'p [u32], index: usize) -> &'p [u32] {
    let own = port_info.cpus.get(index % port_info.cpus.len().max(1));
    own.map_or(near, std::slice::from_ref)
}

/// Binds this new thread to its processor, or to the processors near the device. Also gives the thread a table of file
/// descriptors of its own.
pub(super) fn begin(port_info: &PortInfo, near: &[u32], index: usize) {
    let cpus = processors(port_info, near, index);
    if !cpus.is_empty() {
        // Ignores the error, because binding succeeded when the side was opened.
        let _ = numa::run_on(cpus);
    }
    // The table stays shared for softrnic, because it opens files while it posts, and all threads must share these
    // files.
    if !port_info.is_soft() {
        own_descriptors();
    }
}

/// Gives this thread a table of file descriptors of its own.
///
/// On a software device of the kernel, each post is a `write`, and each wait for an event is a `read`. If several
/// threads share a table, each of these calls takes a reference to the file, which requires atomic instructions.
///
/// If another thread closes a file later, the file stays open in this thread's table until this thread ends. To end a
/// connection at once, it has to be shut down.
fn own_descriptors() {
    // SAFETY: this thread uses the device, the channels of its queues and the stop signal. All were opened before, and
    // have the same numbers in the copy. This thread opens and closes nothing that another thread uses: queues and
    // memory belong to the side, on another thread. If another thread closes a number and reuses it, the copy still has
    // the old file, which this thread does not use. If the kernel refuses the call, the table stays shared.
    let _ = unsafe { unshare_unsafe(UnshareFlags::FILES) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::thread;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn thread_keeps_open_files_and_owns_new_ones() {
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
        // The copy of the table ended with its thread, so no descriptor of the writing end is left.
        drop(writer);
        assert_eq!(reader.read(&mut text).unwrap(), 0);
    }
}
