//! The lens on softrnic. A process has one lens, so a lock orders the tests.

#![expect(clippy::unwrap_used, reason = "tests")]

mod again;
mod border;
mod completions;
mod ends;
mod explained;
mod faults;
mod held;
mod manager;
mod planted;
mod support;
mod traces;
