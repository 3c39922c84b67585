//! The C interface of trespass: numbered handles, and `-errno` for each failure. `include/trespass.h` describes each
//! function.
//!
//! All connections belong to the default worker of the process. A panic does not unwind into C: it aborts the process.

mod cancel;
mod connection;
mod error;
mod handle;
mod poll;

pub use self::connection::{
    Connection, Listener, Message, tr_abandon, tr_accept, tr_close, tr_connect, tr_flush, tr_listen, tr_listener_close,
    tr_listener_port, tr_message_data, tr_message_free, tr_message_length, tr_recv, tr_send, tr_shutdown, tr_transport,
    tr_use_softrnic,
};
pub use self::poll::{PollItem, tr_poll};
