//! Tests of the C API within one process. A test that requires a process of its own starts one.

#[expect(dead_code, reason = "each test program uses a part")]
#[path = "../common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod connected;
mod devices;
mod environment;
mod many;
mod profile;
mod rdmacm;
mod signals;
mod threads;
