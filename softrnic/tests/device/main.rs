//! The C API within one process. What has to be alone in a process is, in one that its test starts.

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod connected;
mod devices;
mod environment;
mod many;
mod rdmacm;
mod signals;
mod threads;
