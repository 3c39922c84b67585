//! Waits for one of several handles.

use std::ffi::{c_int, c_short};
use std::io;
use std::slice;

use trespass::Interest;

use crate::connection::{Connection, Listener};
use crate::error::{code, deadline, invalid};

/// `TR_IN`: a message, the end of the messages, or a connection to accept.
const IN: c_short = 1;
/// `TR_OUT`: a message can be sent.
const OUT: c_short = 4;

/// A handle to wait for: `struct tr_pollitem`. Either the connection or the listener is null.
#[derive(Debug)]
#[repr(C)]
pub struct PollItem {
    /// A connection.
    pub connection: *const Connection,
    /// A listener.
    pub listener: *const Listener,
    /// The events to wait for: `TR_IN`, `TR_OUT`.
    pub events: c_short,
    /// The events that occurred.
    pub revents: c_short,
}

/// Waits until at least one of `count` items has an event. Returns the number of items that have events, or 0 after the
/// time-out.
///
/// # Safety
///
/// `count` items can be read and written at `items`; their handles are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_poll(items: *mut PollItem, count: usize, timeout_ms: c_int) -> c_int {
    if items.is_null() || count == 0 || count > isize::MAX as usize / size_of::<PollItem>() {
        return -libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    let items = unsafe { slice::from_raw_parts_mut(items, count) };
    // SAFETY: guaranteed by the caller.
    match unsafe { wait(items, timeout_ms) } {
        Ok(found) => found,
        Err(error) => code(Err(error)),
    }
}

/// # Safety
///
/// The handles are null or valid.
unsafe fn wait(items: &mut [PollItem], timeout_ms: c_int) -> io::Result<c_int> {
    let mut interests = Vec::new();
    for (index, item) in items.iter_mut().enumerate() {
        item.revents = 0;
        // SAFETY: guaranteed by the caller.
        match unsafe { (item.connection.as_ref(), item.listener.as_ref()) } {
            (Some(connection), None) => {
                if item.events & IN != 0 {
                    interests.push((index, IN, Interest::Message(&connection.inner)));
                }
                if item.events & OUT != 0 {
                    interests.push((index, OUT, Interest::Room(&connection.inner)));
                }
            }
            (None, Some(listener)) => interests.push((index, IN, Interest::Incoming(&listener.0))),
            _ => return Err(invalid("an item of tr_poll has exactly one handle; set either connection or listener")),
        }
    }
    let waited: Vec<Interest<'_>> = interests.iter().map(|(_, _, interest)| *interest).collect();
    let ready = trespass::poll(&waited, deadline(timeout_ms))?;
    for ((index, event, _), is_ready) in interests.iter().zip(ready) {
        if let Some(item) = items.get_mut(*index).filter(|_| is_ready) {
            item.revents |= event;
        }
    }
    Ok(c_int::try_from(items.iter().filter(|item| item.revents != 0).count()).unwrap_or(c_int::MAX))
}
