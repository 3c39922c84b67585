//! No error is silent. Programs that together use all wrappers run once to count the C calls, and then repeatedly: with
//! each call failing in turn, with every destroy failing, and with each number from C replaced by one that no header
//! defines. Each run gives a typed error that names its verb, or succeeds in another way; every object is destroyed
//! exactly once, or is leaked with a log message if destroying fails; nothing panics.
//!
//! `coverage.rs` asserts that the programs call every function.
#![expect(clippy::unwrap_used, reason = "a test")]

mod acts;
mod coverage;
mod endings;
mod failures;
mod values;

use sideway_tests::recording::{Call, Recording};

use acts::{ACTS, Act};

/// Runs a program without faults, and passes its log to `look`.
#[track_caller]
fn whole<T>(act: Act, look: impl FnOnce(&Recording) -> T) -> T {
    let recording = Recording::new();
    (act.run)(&recording).unwrap_or_else(|error| panic!("{}: {error}", act.name));
    assert_eq!(recording.violations(), [""; 0], "{}", act.name);
    assert_eq!(recording.live(), [], "{}", act.name);
    look(&recording)
}

/// Whether the call destroys an object: if it fails, the object can only be leaked.
fn ends(call: &Call) -> bool {
    ["destroy", "dealloc", "dereg", "close", "free"].iter().any(|word| call.verb.starts_with(word))
}
