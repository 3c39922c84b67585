//! Waits for one of several handles.

use std::ffi::{c_int, c_short};
use std::io;
use std::slice;
use std::sync::Arc;

use trespass::{Acceptor, Interest};

use crate::cancel::Uncancelled;
use crate::connection::{Connection, LISTENERS, Listener, Open, open};
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

/// The largest number of items. A larger one is an error of the caller, such as a negative number.
const MOST: usize = 1 << 20;

/// Waits until at least one of `count` items has an event. Returns the number of items that have events, or 0 after the
/// time-out.
///
/// # Safety
///
/// `items` is null, or `count` items can be read and written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_poll(items: *mut PollItem, count: usize, timeout_ms: c_int) -> c_int {
    let _uncancelled = Uncancelled::begin();
    if items.is_null() || count == 0 || count > MOST {
        return -libc::EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    let items = unsafe { slice::from_raw_parts_mut(items, count) };
    match wait(items, timeout_ms) {
        Ok(found) => found,
        Err(error) => code(Err(error)),
    }
}

/// The object of an item.
#[derive(Debug)]
enum Object {
    Connection(Arc<Open>),
    Listener(Arc<Acceptor>),
}

impl Object {
    /// # Errors
    ///
    /// The handle is invalid, or the object does not have one of the events.
    fn of(item: &PollItem) -> io::Result<Self> {
        let (object, events) = match (item.connection.is_null(), item.listener.is_null()) {
            (false, true) => (Self::Connection(open(item.connection)?), IN | OUT),
            (true, false) => (Self::Listener(LISTENERS.get().with(item.listener, Arc::clone)?), IN),
            _ => return Err(invalid("an item of tr_poll has exactly one handle; set either connection or listener")),
        };
        if item.events & !events != 0 {
            return Err(invalid("an item of tr_poll has events that its handle does not have"));
        }
        Ok(object)
    }

    fn interest(&self, event: c_short) -> Interest<'_> {
        match self {
            Self::Connection(connection) if event == OUT => Interest::Room(&connection.inner),
            Self::Connection(connection) => Interest::Message(&connection.inner),
            Self::Listener(acceptor) => Interest::Incoming(acceptor),
        }
    }
}

fn wait(items: &mut [PollItem], timeout_ms: c_int) -> io::Result<c_int> {
    items.iter_mut().for_each(|item| item.revents = 0);
    let objects: Vec<Object> = items.iter().map(Object::of).collect::<io::Result<_>>()?;
    let mut waited = Vec::new();
    for (index, (item, object)) in items.iter().zip(&objects).enumerate() {
        let events = [IN, OUT].into_iter().filter(|event| item.events & event != 0);
        waited.extend(events.map(|event| (index, event, object.interest(event))));
    }
    let interests: Vec<Interest<'_>> = waited.iter().map(|(_, _, interest)| *interest).collect();
    let ready = trespass::poll(&interests, deadline(timeout_ms))?;
    for ((index, event, _), is_ready) in waited.iter().zip(ready) {
        if let Some(item) = items.get_mut(*index).filter(|_| is_ready) {
            item.revents |= event;
        }
    }
    Ok(c_int::try_from(items.iter().filter(|item| item.revents != 0).count()).unwrap_or(c_int::MAX))
}
