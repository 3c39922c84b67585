//! The functions that listen, connect, send, receive and close.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr;
use std::slice;
use std::sync::Arc;

use trespass::{Acceptor, Buf, Handle, Kind, PerProcess};

use crate::cancel::Uncancelled;
use crate::error::{code, deadline, invalid, name};
use crate::handle::Table;

/// `struct tr_listener`. Only pointers to it exist, which are handles.
#[derive(Debug)]
#[repr(C)]
pub struct Listener([u8; 0]);

/// `struct tr_connection`. Only pointers to it exist, which are handles. Any thread may use them, until [`tr_close`].
#[derive(Debug)]
#[repr(C)]
pub struct Connection([u8; 0]);

/// `struct tr_message`. Only pointers to it exist, which are handles.
#[derive(Debug)]
#[repr(C)]
pub struct Message([u8; 0]);

/// A connection and the description of its transport.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) inner: trespass::Connection,
    transport: CString,
}

pub(crate) type Listeners = Table<Listener, Arc<Acceptor>>;
pub(crate) type Connections = Table<Connection, Arc<Open>>;
type Messages = Table<Message, Buf>;

// A call holds a reference to its object, so that another thread may close it at the same time.
pub(crate) static LISTENERS: PerProcess<Listeners> = PerProcess::new(Table::new(1), || Box::new(Table::new(1)));
pub(crate) static CONNECTIONS: PerProcess<Connections> = PerProcess::new(Table::new(2), || Box::new(Table::new(2)));
static MESSAGES: PerProcess<Messages> = PerProcess::new(Table::new(3), || Box::new(Table::new(3)));

/// Registers softrnic, the RDMA NIC in software.
#[unsafe(no_mangle)]
pub extern "C" fn tr_use_softrnic() -> c_int {
    let _uncancelled = Uncancelled::begin();
    #[cfg(feature = "softrnic")]
    return code(softrnic::register().map_err(|error| io::Error::other(error.to_string())));
    #[cfg(not(feature = "softrnic"))]
    code(Err(io::ErrorKind::Unsupported.into()))
}

/// Listens at a host and a port.
///
/// # Safety
///
/// `host` is null or ends with a zero byte; `listener` is null, or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_listen(host: *const c_char, port: u16, listener: *mut *mut Listener) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: guaranteed by the caller.
    let bind = || unsafe { name(host) }.and_then(|host| Acceptor::bind((host, port)));
    // SAFETY: guaranteed by the caller.
    unsafe { give(listener, || LISTENERS.get().insert(Arc::new(bind()?))) }
}

/// Returns the port of a listener; 0 if the handle is null or invalid.
#[unsafe(no_mangle)]
pub extern "C" fn tr_listener_port(listener: *const Listener) -> u16 {
    LISTENERS.get().with(listener, |acceptor| acceptor.local_addr().port()).unwrap_or(0)
}

/// Waits for a connection.
///
/// # Safety
///
/// `connection` is null, or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_accept(
    listener: *const Listener,
    timeout_ms: c_int,
    connection: *mut *mut Connection,
) -> c_int {
    let _uncancelled = Uncancelled::begin();
    let accept = || LISTENERS.get().with(listener, Arc::clone)?.accept_until(deadline(timeout_ms));
    // SAFETY: guaranteed by the caller.
    unsafe { give(connection, || wrap(accept()?)) }
}

/// Closes and frees a listener.
#[unsafe(no_mangle)]
pub extern "C" fn tr_listener_close(listener: *mut Listener) {
    let _uncancelled = Uncancelled::begin();
    if let Ok(acceptor) = LISTENERS.get().take(listener) {
        acceptor.close();
    }
}

/// Connects.
///
/// # Safety
///
/// `host` is null or ends with a zero byte; `connection` is null, or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_connect(
    host: *const c_char,
    port: u16,
    timeout_ms: c_int,
    connection: *mut *mut Connection,
) -> c_int {
    let _uncancelled = Uncancelled::begin();
    let time = deadline(timeout_ms).map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
    let connect = || {
        // SAFETY: guaranteed by the caller.
        let host = unsafe { name(host) }?;
        trespass::Connection::connect_on(&Handle::global()?, (host, port), time)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { give(connection, || wrap(connect()?)) }
}

/// Sends a copy of a message.
///
/// # Safety
///
/// `length` bytes can be read at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_send(
    connection: *const Connection,
    message: *const c_void,
    length: usize,
    flags: c_int,
) -> c_int {
    let _uncancelled = Uncancelled::begin();
    let sent = open(connection).and_then(|connection| {
        let bytes: &[u8] = match length {
            0 => &[],
            _ if message.is_null() || length > isize::MAX as usize => return Err(invalid("there is no message")),
            // SAFETY: guaranteed by the caller.
            _ => unsafe { slice::from_raw_parts(message.cast(), length) },
        };
        match flags {
            0 => connection.inner.send(bytes),
            DONT_WAIT => connection.inner.try_send(bytes),
            _ => Err(invalid("there is no such flag")),
        }
    });
    code(sent)
}

/// `TR_DONTWAIT`.
const DONT_WAIT: c_int = 1;

/// Waits for a message. At the end of the messages, returns 0 and a null message.
///
/// # Safety
///
/// `message` is null, or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_recv(
    connection: *const Connection,
    timeout_ms: c_int,
    message: *mut *mut Message,
) -> c_int {
    let _uncancelled = Uncancelled::begin();
    let receive = || {
        let connection = open(connection)?;
        let received = match timeout_ms {
            0 => connection.inner.try_recv(),
            _ => connection.inner.recv_until(deadline(timeout_ms)),
        };
        received?.map_or(Ok(ptr::null_mut()), |message| MESSAGES.get().insert(message))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { give(message, receive) }
}

/// Returns the bytes of a message; null if the handle is null or invalid.
#[unsafe(no_mangle)]
pub extern "C" fn tr_message_data(message: *const Message) -> *const c_void {
    MESSAGES.get().with(message, |message| message.as_ptr().cast()).unwrap_or(ptr::null())
}

/// Returns the length of a message; 0 if the handle is null or invalid.
#[unsafe(no_mangle)]
pub extern "C" fn tr_message_length(message: *const Message) -> usize {
    MESSAGES.get().with(message, |message| message.len()).unwrap_or(0)
}

/// Frees a message.
#[unsafe(no_mangle)]
pub extern "C" fn tr_message_free(message: *mut Message) {
    // An invalid handle has nothing to free.
    _ = MESSAGES.get().take(message);
}

/// Waits until the peer's NIC has received everything that was sent.
#[unsafe(no_mangle)]
pub extern "C" fn tr_flush(connection: *const Connection) -> c_int {
    let _uncancelled = Uncancelled::begin();
    code(open(connection).and_then(|connection| connection.inner.flush()))
}

/// Ends this side's sending. The connection can still receive.
#[unsafe(no_mangle)]
pub extern "C" fn tr_shutdown(connection: *const Connection) -> c_int {
    let _uncancelled = Uncancelled::begin();
    code(open(connection).and_then(|connection| connection.inner.shutdown()))
}

/// Describes the connection's transport, until the connection is closed; empty if the handle is null or invalid.
#[unsafe(no_mangle)]
pub extern "C" fn tr_transport(connection: *const Connection) -> *const c_char {
    // The bytes of the text do not move.
    let text = CONNECTIONS.get().with(connection, |connection| CStr::as_ptr(&connection.transport));
    text.unwrap_or(c"".as_ptr())
}

/// Closes and frees a connection, after the peer has received everything, or after the linger time.
#[unsafe(no_mangle)]
pub extern "C" fn tr_close(connection: *mut Connection, close_code: u32) -> c_int {
    let _uncancelled = Uncancelled::begin();
    if connection.is_null() {
        return 0;
    }
    code(CONNECTIONS.get().take(connection).and_then(|connection| connection.inner.close(close_code, "")))
}

/// Closes and frees a connection without waiting. The peer still receives what was sent, within the linger time.
#[unsafe(no_mangle)]
pub extern "C" fn tr_abandon(connection: *mut Connection, close_code: u32) -> c_int {
    let _uncancelled = Uncancelled::begin();
    if connection.is_null() {
        return 0;
    }
    code(CONNECTIONS.get().take(connection).map(|connection| connection.inner.abandon(close_code, "")))
}

/// Returns the connection of a handle. It exists while a call uses it, also if another thread closes the handle.
#[inline]
pub(crate) fn open(connection: *const Connection) -> io::Result<Arc<Open>> {
    CONNECTIONS.get().with(connection, Arc::clone)
}

fn wrap(inner: trespass::Connection) -> io::Result<*mut Connection> {
    let stats = inner.stats()?;
    let kind = match stats.transport {
        Kind::Rdma => "RDMA",
        Kind::Tcp => "TCP",
        _ => "other",
    };
    let transport = CString::new(format!("{kind}: {stats}")).unwrap_or_default();
    CONNECTIONS.get().insert(Arc::new(Open { inner, transport }))
}

/// Stores a new handle at `place`, or null if there is an error. Makes nothing if `place` is null.
///
/// # Safety
///
/// `place` is null, or points to writable memory.
unsafe fn give<H>(place: *mut *mut H, make: impl FnOnce() -> io::Result<*mut H>) -> c_int {
    if place.is_null() {
        return code(Err(invalid("the pointer for the new handle is null")));
    }
    let made = make();
    // SAFETY: the pointer is not null, and the caller guarantees that it can be written.
    unsafe { *place = *made.as_ref().unwrap_or(&ptr::null_mut()) };
    code(made.map(drop))
}
