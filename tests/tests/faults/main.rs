//! What the programs of this workspace see when verbs fail, by schedules of the lens, on softrnic. A process has one lens,
//! so a lock orders the tests. A failure prints its schedule and its seed, which repeat it.
//!
//! The tests run a part of the schedules. `FAULTS_ONLY=TEXT` runs all that contain the text, which may be empty. With
//! `--nocapture` the tests print what was seen.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod benchmark;
mod canter;
mod echo;
mod harness;
mod pipe;
mod rpc;
mod schedules;
mod trespass;
