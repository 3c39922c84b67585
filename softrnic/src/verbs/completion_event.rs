//! Waiting for the events of completion channels, and their acknowledgement.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::pollfd;
use rdma_mummy_sys::load::provider;
use rdma_mummy_sys::{ibv_comp_channel, ibv_cq};

use super::completion_channel::{Completed, CompletionChannel};
use super::completion_queue::Queue;
use super::context::is_inherited;
use super::failure;
use super::object::Object;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::wire::transport::Sockets;

impl CompletionChannel {
    fn take(&self) -> Result<*mut ibv_cq, Errno> {
        if let Some(queue) = self.try_take() {
            return Ok(queue);
        }
        if self.events.is_nonblocking()? {
            return Err(Errno::AGAIN);
        }
        let attending = self.attend();
        loop {
            if let Some(queue) = self.try_take() {
                return Ok(queue);
            }
            let descriptor = match &attending {
                Some(Attending { sockets, .. }) if sockets.serve() => continue,
                Some(Attending { descriptor, .. }) => Some(*descriptor),
                None => None,
            };
            // Another thread may take the event, so the loop checks again.
            self.events.wait(descriptor)?;
        }
    }

    /// Makes this thread serve the sockets, unless another thread does.
    fn attend(&self) -> Option<Attending> {
        QpRegistry::of_process().sockets(self.fabric).and_then(Attending::begin)
    }

    fn try_take(&self) -> Option<*mut ibv_cq> {
        self.events.try_take(|Completed(queue)| {
            // SAFETY: the queue exists: its destruction first removes its events, for which it needs the lock held
            // here, and then waits until each counted event is acknowledged.
            unsafe { Queue::of(queue) }.count_event();
            queue
        })
    }
}

/// How often a thread serves the sockets in one wait, if none of its descriptors becomes ready.
const SERVES: u32 = 16;

/// A thread that serves the sockets of the transport while it waits for an event. This ends with the drop.
struct Attending {
    sockets: &'static dyn Sockets,
    descriptor: BorrowedFd<'static>,
}

impl Attending {
    fn begin(sockets: &'static dyn Sockets) -> Option<Self> {
        sockets.attend().map(|descriptor| Self { sockets, descriptor })
    }

    /// Waits like `ppoll(2)`, and serves the sockets during this time. After [`SERVES`] times, it hands them back and
    /// continues to wait: the messages are then for other threads of the program.
    fn wait(self, descriptors: &mut [pollfd], most: Option<Duration>) -> c_int {
        let deadline = most.and_then(|most| Instant::now().checked_add(most));
        let mut all = descriptors.to_vec();
        all.push(pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        for _ in 0..SERVES {
            let left = left();
            let found = provider::poll(&mut all, left);
            if found < 0 {
                return found;
            }
            let found_here = found - c_int::from(all[descriptors.len()].revents != 0);
            // The sockets may always be ready, and the wait must end even then.
            if found_here != 0 || left == Some(Duration::ZERO) || found == 0 {
                descriptors.copy_from_slice(&all[..descriptors.len()]);
                return found_here;
            }
            self.sockets.serve();
        }
        drop(self);
        provider::poll(descriptors, left())
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.sockets.leave();
    }
}

/// `ibv_get_cq_event(channel, cq, cq_context)`: zero, or -1 and errno.
pub(crate) unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: required by the C API: the channel is alive.
    let channel = unsafe { CompletionChannel::of(channel) };
    match channel.take() {
        // SAFETY: the queue exists until this event is acknowledged, and its context never changes; the C API requires
        // that the other two are writable.
        Ok(queue) => unsafe {
            cq.write(queue);
            cq_context.write((*queue).cq_context);
            0
        },
        Err(errno) => failure::minus_one(errno),
    }
}

/// Serves the device while a thread waits for events of the channel, which may be in non-blocking mode (see
/// [`provider::wait`]).
pub(crate) unsafe fn wait(channel: *mut ibv_comp_channel, descriptors: &mut [pollfd], most: Option<Duration>) -> c_int {
    // SAFETY: guaranteed by the caller: the channel is alive. A forked child accesses only its context.
    let attending = match unsafe { most == Some(Duration::ZERO) || is_inherited((*channel).context) } {
        true => None,
        // SAFETY: as above.
        false => unsafe { CompletionChannel::of(channel) }.attend(),
    };
    match attending {
        Some(attending) => attending.wait(descriptors, most),
        None => provider::poll(descriptors, most),
    }
}

/// `ibv_ack_cq_events(cq, nevents)`.
pub(crate) unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: required by the C API: the queue is alive. The queue's destruction waits for these acknowledgements.
    unsafe { Queue::acknowledgements(cq).add(nevents) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{fs, thread};

    use super::*;
    use crate::verbs::completion_channel::{create_comp_channel, destroy_comp_channel};
    use crate::verbs::device::Device;
    use crate::verbs::event_fd_queue::EventFdQueue;
    use crate::verbs::{context::close_device, open::open_device};

    /// Sockets that are ready until they have been served `last` times. Then the completion event arrives.
    struct Fake {
        sockets: EventFdQueue<()>,
        channel: EventFdQueue<()>,
        served: AtomicU32,
        last: u32,
        left: AtomicU32,
    }

    impl Fake {
        fn new(last: u32) -> &'static Self {
            let queue = || EventFdQueue::new().expect("a descriptor");
            let fake =
                Self { sockets: queue(), channel: queue(), served: AtomicU32::new(0), last, left: AtomicU32::new(0) };
            if last > 0 {
                fake.sockets.put(());
            }
            Box::leak(Box::new(fake))
        }

        /// Waits for the channel. Returns the result, and whether the channel is readable.
        fn wait(&'static self, most: Option<Duration>) -> (c_int, bool) {
            let mut polls = [pollfd { fd: self.channel.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            let found = Attending::begin(self).expect("no other thread serves").wait(&mut polls, most);
            assert_eq!(self.left.load(Ordering::Relaxed), 1, "the sockets are handed back");
            (found, polls[0].revents == libc::POLLIN)
        }
    }

    impl Sockets for Fake {
        fn attend(&self) -> Option<BorrowedFd<'_>> {
            Some(self.sockets.as_fd())
        }

        fn serve(&self) -> bool {
            if self.served.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
                self.sockets.try_take(drop);
                self.channel.put(());
            }
            true
        }

        fn leave(&self) {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn wait_serves_the_sockets_until_the_descriptor_is_readable() {
        let fake = Fake::new(3);
        assert_eq!(fake.wait(None), (1, true));
        assert_eq!(fake.served.load(Ordering::Relaxed), 3);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn event_of_another_thread_ends_the_wait() {
        let fake = Fake::new(0);
        let putting = thread::spawn(|| fake.channel.put(()));
        assert_eq!(fake.wait(None), (1, true));
        assert_eq!(fake.served.load(Ordering::Relaxed), 0);
        putting.join().expect("no panic");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn time_limit_ends_the_wait_although_the_sockets_are_ready() {
        let limit = Some(Duration::from_millis(10));
        assert_eq!(Fake::new(0).wait(limit), (0, false));
        let busy = Fake::new(u32::MAX);
        assert_eq!(busy.wait(limit), (0, false));
        assert_eq!(busy.served.load(Ordering::Relaxed), SERVES, "the messages are for other threads");
    }

    /// The descriptor does not report the sockets of the iWARP device. A program that they woke found no event, and
    /// libfabric then failed.
    #[test]
    #[cfg_attr(miri, ignore = "reads /proc")]
    fn descriptor_reports_only_events() {
        let device = Device::new("softiw0", 1, false, None);
        // SAFETY: the device outlives the context, and the context the channel. Each object is destroyed once.
        unsafe {
            let context = open_device(device.as_c());
            let channel = create_comp_channel(context);
            let descriptor = fs::read_to_string(format!("/proc/self/fdinfo/{}", (*channel).fd)).expect("a descriptor");
            let watched = descriptor.lines().filter(|line| line.starts_with("tfd:")).count();
            assert_eq!(watched, 1, "{descriptor}");
            assert_eq!((destroy_comp_channel(channel), close_device(context)), (0, 0));
        }
    }
}
