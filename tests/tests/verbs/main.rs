//! sideway on the recording device. Only the thread that created a device lists it, so tests run in parallel.

mod address;
mod calls;
mod completion;
mod domain;
mod drivers;
mod events;
mod everything;
mod faults;
mod holes;
mod memory;
mod offload;
mod requests;
mod shared_receive_queue;
mod teardown;
mod values;
