//! The C API: the objects, each of which starts with its C struct, and the functions that operate on them.
//!
//! Each file contains a C object and the verbs that operate on it. A verb is an `extern "C"` function, which has the
//! name of the C function without `ibv_`. `table` lists all functions.
//!
//! Unsupported features: flow steering, work queues, RSS, tag matching, packet pacing, counters, raw
//! packets, and path migration. Posting, polling and waiting for events are not cancellation points (`pthread_cancel`).

pub(crate) mod address_handle;
pub(crate) mod async_event;
pub(crate) mod async_event_verbs;
mod buffer;
pub(crate) mod completion_channel;
pub(crate) mod completion_event;
pub(crate) mod completion_queue;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod event_fd_queue;
mod exports;
pub(crate) mod failure;
pub(crate) mod files;
pub(crate) mod gid;
pub(crate) mod guard;
pub(crate) mod import;
pub(crate) mod kind;
pub(crate) mod limits;
pub(crate) mod memory_region;
#[cfg(test)]
mod memory_tests;
pub(crate) mod memory_window;
pub(crate) mod multicast;
pub(crate) mod object;
pub(crate) mod open;
pub(crate) mod port;
pub(crate) mod protection_domain;
pub(crate) mod query_device;
pub(crate) mod queue_pair;
pub(crate) mod shared_receive_queue;
pub(crate) mod table;
pub(crate) mod thread_domain;
mod turn;
pub(crate) mod xrc_domain;
