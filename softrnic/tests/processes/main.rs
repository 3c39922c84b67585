//! Tests with several processes: connected peers, killed peers, and children of `fork`.

#[path = "../common/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;

mod fork;
mod fork_register;
mod kills;
mod order;
mod other_process;
mod peers;
