//! The functions that listen, connect, send, receive and close.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr;
use std::slice;

use trespass::{Acceptor, Buf, Handle, Kind};

use crate::error::{code, deadline, invalid, name};

/// A listener: `struct tr_listener`.
#[derive(Debug)]
pub struct Listener(pub(crate) Acceptor);

/// A connection: `struct tr_connection`. Any thread may use it until [`tr_close`].
#[derive(Debug)]
pub struct Connection {
    pub(crate) inner: trespass::Connection,
    transport: CString,
}

/// A received message: `struct tr_message`.
#[derive(Debug)]
pub struct Message(Buf);

/// Registers softrnic, the RDMA NIC in software.
#[unsafe(no_mangle)]
pub extern "C" fn tr_use_softrnic() -> c_int {
    #[cfg(feature = "softrnic")]
    return code(softrnic::register().map_err(|error| io::Error::other(error.to_string())));
    #[cfg(not(feature = "softrnic"))]
    code(Err(io::ErrorKind::Unsupported.into()))
}

/// Listens at a host and a port.
///
/// # Safety
///
/// `host` is null or ends with a zero byte; `listener` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_listen(host: *const c_char, port: u16, listener: *mut *mut Listener) -> c_int {
    // SAFETY: guaranteed by the caller.
    let bound = unsafe { name(host) }.and_then(|host| Acceptor::bind((host, port)));
    // SAFETY: guaranteed by the caller.
    unsafe { give(bound.map(Listener), listener) }
}

/// Returns the port of a listener; 0 for a null pointer.
///
/// # Safety
///
/// `listener` is null, or was returned by [`tr_listen`] and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_listener_port(listener: *const Listener) -> u16 {
    // SAFETY: guaranteed by the caller.
    unsafe { listener.as_ref() }.map_or(0, |listener| listener.0.local_addr().port())
}

/// Waits for a connection.
///
/// # Safety
///
/// As for [`tr_listener_port`]; `connection` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_accept(
    listener: *const Listener,
    timeout_ms: c_int,
    connection: *mut *mut Connection,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let accepted = unsafe { borrow(listener) }.and_then(|listener| listener.0.accept_until(deadline(timeout_ms)));
    // SAFETY: guaranteed by the caller.
    unsafe { give(accepted.and_then(wrap), connection) }
}

/// Closes and frees a listener.
///
/// # Safety
///
/// As for [`tr_listener_port`]. The listener must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_listener_close(listener: *mut Listener) {
    if !listener.is_null() {
        // SAFETY: `tr_listen` created the pointer from a box, and the caller does not use it afterwards.
        drop(unsafe { Box::from_raw(listener) });
    }
}

/// Connects.
///
/// # Safety
///
/// `host` is null or ends with a zero byte; `connection` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_connect(
    host: *const c_char,
    port: u16,
    timeout_ms: c_int,
    connection: *mut *mut Connection,
) -> c_int {
    let time = deadline(timeout_ms).map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
    // SAFETY: guaranteed by the caller.
    let connected =
        unsafe { name(host) }.and_then(|host| trespass::Connection::connect_on(&Handle::global()?, (host, port), time));
    // SAFETY: guaranteed by the caller.
    unsafe { give(connected.and_then(wrap), connection) }
}

/// Sends a copy of a message.
///
/// # Safety
///
/// `connection` is null, or was returned by this library and is not closed; `length` bytes can be read at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_send(
    connection: *const Connection,
    message: *const c_void,
    length: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let sent = unsafe { borrow(connection) }.and_then(|connection| {
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
/// `connection` as for [`tr_send`]; `message` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_recv(
    connection: *const Connection,
    timeout_ms: c_int,
    message: *mut *mut Message,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let received = unsafe { borrow(connection) }.and_then(|connection| match timeout_ms {
        0 => connection.inner.try_recv(),
        _ => connection.inner.recv_until(deadline(timeout_ms)),
    });
    match received {
        // SAFETY: guaranteed by the caller.
        Ok(Some(buf)) => unsafe { give(Ok(Message(buf)), message) },
        Ok(None) => {
            // SAFETY: guaranteed by the caller.
            unsafe { clear(message) };
            0
        }
        // SAFETY: guaranteed by the caller.
        Err(error) => unsafe { give(Err(error), message) },
    }
}

/// Returns the bytes of a message.
///
/// # Safety
///
/// `message` is null, or was returned by [`tr_recv`] and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_message_data(message: *const Message) -> *const c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { message.as_ref() }.map_or(ptr::null(), |message| message.0.as_ptr().cast())
}

/// Returns the length of a message; 0 for a null pointer.
///
/// # Safety
///
/// As for [`tr_message_data`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_message_length(message: *const Message) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { message.as_ref() }.map_or(0, |message| message.0.len())
}

/// Frees a message.
///
/// # Safety
///
/// As for [`tr_message_data`]. The message must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_message_free(message: *mut Message) {
    if !message.is_null() {
        // SAFETY: `tr_recv` created the pointer from a box, and the caller does not use it afterwards.
        drop(unsafe { Box::from_raw(message) });
    }
}

/// Waits until the peer's NIC has received everything that was sent.
///
/// # Safety
///
/// `connection` as for [`tr_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_flush(connection: *const Connection) -> c_int {
    // SAFETY: guaranteed by the caller.
    code(unsafe { borrow(connection) }.and_then(|connection| connection.inner.flush()))
}

/// Ends this side's sending. The connection can still receive.
///
/// # Safety
///
/// `connection` as for [`tr_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_shutdown(connection: *const Connection) -> c_int {
    // SAFETY: guaranteed by the caller.
    code(unsafe { borrow(connection) }.and_then(|connection| connection.inner.shutdown()))
}

/// Describes the connection's transport.
///
/// # Safety
///
/// `connection` as for [`tr_send`]. The text is valid until the connection is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_transport(connection: *const Connection) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { connection.as_ref() }.map_or(c"".as_ptr(), |connection| CStr::as_ptr(&connection.transport))
}

/// Closes and frees a connection, after the peer has received everything, or after the linger time.
///
/// # Safety
///
/// `connection` as for [`tr_send`]. The caller does not use it afterwards, whatever this function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tr_close(connection: *mut Connection, close_code: u32) -> c_int {
    if connection.is_null() {
        return 0;
    }
    // SAFETY: `wrap` and `give` created the pointer from a box, and the caller does not use it afterwards.
    let connection = unsafe { Box::from_raw(connection) };
    code(connection.inner.close(close_code, ""))
}

fn wrap(inner: trespass::Connection) -> io::Result<Connection> {
    let stats = inner.stats()?;
    let kind = match stats.transport {
        Kind::Rdma => "RDMA",
        Kind::Tcp => "TCP",
        _ => "other",
    };
    let transport = CString::new(format!("{kind}: {stats}")).unwrap_or_default();
    Ok(Connection { inner, transport })
}

/// # Safety
///
/// `handle` is null or valid.
pub(crate) unsafe fn borrow<'h, T>(handle: *const T) -> io::Result<&'h T> {
    // SAFETY: guaranteed by the caller.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("the handle is null"))
}

/// Stores a handle at `place`, or null if there is an error.
///
/// # Safety
///
/// `place` is null, or points to writable memory.
unsafe fn give<T>(value: io::Result<T>, place: *mut *mut T) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { clear(place) };
    let value = match value {
        Ok(_) if place.is_null() => Err(invalid("the pointer for the new handle is null")),
        value => value,
    };
    code(value.map(|value| {
        // SAFETY: the pointer is not null, and the caller guarantees that it can be written.
        unsafe { *place = Box::into_raw(Box::new(value)) };
    }))
}

/// # Safety
///
/// As for `give`.
unsafe fn clear<T>(place: *mut *mut T) {
    if !place.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { *place = ptr::null_mut() };
    }
}
