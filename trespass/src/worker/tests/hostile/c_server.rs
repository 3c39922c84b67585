//! A server in the C interface: a thread that blocks for its first client, and a loop of `tr_poll` for all others. Each
//! call returns, and has a valid result, whatever the peers do.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use trespass_c::{
    Connection, Listener, Message, PollItem, tr_accept, tr_close, tr_listen, tr_listener_close, tr_listener_port,
    tr_message_data, tr_message_free, tr_message_length, tr_poll, tr_recv, tr_send,
};

use super::server::report;

/// `TR_IN`, `TR_OUT`, `TR_DONTWAIT`.
const IN: i16 = 1;
const OUT: i16 = 4;
const DONT_WAIT: i32 = 1;

/// A limit that only a call that hangs reaches, in milliseconds.
const LONG: i32 = 60_000;

/// A connection that is served without blocking, and the message that it could not yet send.
struct Served {
    connection: *mut Connection,
    pending: *mut Message,
}

impl Served {
    /// Echoes what can be received and sent. Returns false if the connection has ended.
    fn serve(&mut self) -> bool {
        for _ in 0..16 {
            if self.pending.is_null() {
                match receive(self.connection, 0, &mut self.pending) {
                    0 if self.pending.is_null() => return false,
                    0 => {}
                    code => return code == -libc::EAGAIN,
                }
            }
            match send(self.connection, self.pending, DONT_WAIT) {
                0 => free(&mut self.pending),
                code => return code == -libc::EAGAIN,
            }
        }
        true
    }

    fn item(&self) -> PollItem {
        let events = if self.pending.is_null() { IN } else { OUT };
        PollItem { connection: self.connection, listener: ptr::null(), events, revents: -1 }
    }
}

fn receive(connection: *const Connection, time: i32, message: &mut *mut Message) -> i32 {
    // SAFETY: the pointer is that of a reference.
    let code = unsafe { tr_recv(connection, time, &raw mut *message) };
    assert!(code == 0 || message.is_null(), "{code}");
    code
}

fn send(connection: *const Connection, message: *const Message, flags: i32) -> i32 {
    // SAFETY: the message is freed after the call.
    unsafe { tr_send(connection, tr_message_data(message), tr_message_length(message), flags) }
}

fn free(message: &mut *mut Message) {
    tr_message_free(*message);
    *message = ptr::null_mut();
}

fn accept(listener: *const Listener, time: i32) -> Result<*mut Connection, i32> {
    let mut connection = ptr::null_mut();
    // SAFETY: the pointer is that of a local variable.
    let code = unsafe { tr_accept(listener, time, &raw mut connection) };
    assert_eq!(code == 0, !connection.is_null(), "{code}");
    if code == 0 { Ok(connection) } else { Err(code) }
}

/// Closes a connection on another thread, because a peer that reads nothing delays the call.
fn close(served: &mut Served) -> thread::JoinHandle<()> {
    free(&mut served.pending);
    let handle = served.connection.addr();
    thread::spawn(move || {
        // The peer may have violated the protocol, disconnected or read nothing.
        assert!(tr_close(ptr::without_provenance_mut(handle), 0) <= 0);
        assert_eq!(tr_close(ptr::without_provenance_mut(handle), 0), -libc::EBADF);
    })
}

/// Echoes the messages of all peers until the standard input ends.
pub(super) fn serve() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let mut listener = ptr::null_mut();
    // SAFETY: the name ends with a zero byte, and the pointer is that of a local variable.
    assert_eq!(unsafe { tr_listen(c"127.0.0.1".as_ptr(), 0, &raw mut listener) }, 0);
    report(&format!("listens at 127.0.0.1:{}", tr_listener_port(listener)));
    let first = accept(listener, LONG).unwrap().addr();
    let blocking = thread::spawn(move || {
        let first = ptr::without_provenance(first);
        let mut message = ptr::null_mut();
        while receive(first, -1, &mut message) == 0 && !message.is_null() {
            assert_eq!(send(first, message, 0), 0);
            free(&mut message);
        }
    });
    thread::spawn(|| {
        std::io::stdin().lines().map_while(Result::ok).for_each(drop);
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let mut served: Vec<Served> = Vec::new();
    while !IS_OVER.load(Ordering::Relaxed) {
        let item = PollItem { connection: ptr::null(), listener, events: IN, revents: -1 };
        let mut items: Vec<_> = served.iter().map(Served::item).chain([item]).collect();
        // SAFETY: the items are those of the vector.
        let ready = unsafe { tr_poll(items.as_mut_ptr(), items.len(), 1_000) };
        assert_eq!(ready, items.iter().filter(|item| item.revents != 0).count() as i32);
        // Without descriptors this fails, and a later call succeeds.
        while let Ok(connection) = accept(listener, 0) {
            served.push(Served { connection, pending: ptr::null_mut() });
        }
        served.retain_mut(|served| {
            let is_open = served.serve();
            if !is_open {
                close(served);
            }
            is_open
        });
    }
    let first = Served { connection: ptr::without_provenance_mut(first), pending: ptr::null_mut() };
    let closing: Vec<_> = served.into_iter().chain([first]).map(|mut served| close(&mut served)).collect();
    tr_listener_close(listener);
    assert!(accept(listener, LONG).is_err());
    // `tr_close` of another thread ends the call that blocks.
    closing.into_iter().chain([blocking]).for_each(|thread| thread.join().unwrap());
    report("ends");
    std::process::exit(0);
}
