//! Tests the programs with a script that replaces ssh: it drops the options and the host's name, and runs the command
//! on this host.
#![expect(clippy::unwrap_used, reason = "tests")]

mod alike;
mod attacks;
mod chain;
mod changing;
mod closed;
mod common;
mod copy;
mod directories;
mod failings;
mod forced;
mod limits;
mod machine;
mod metadata;
mod mounts;
mod operands;
mod outputs;
mod pipe;
mod resume;
mod shared;
mod specials;
mod sshd;
mod stream;
mod types;
