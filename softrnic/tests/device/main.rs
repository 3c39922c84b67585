//! The C API within one process. Tests that require a process of their own start one.

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
