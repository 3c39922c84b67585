//! The programs themselves, with a stand-in for ssh: it drops options and the host's name, and runs the command here.
#![expect(clippy::unwrap_used, reason = "tests")]

mod attacks;
mod chain;
mod common;
mod copy;
mod failings;
mod pipe;
mod resume;
mod sshd;
mod stream;
