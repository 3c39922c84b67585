//! sideway on the recording device, which only the thread that made it lists: tests run side by side.

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
