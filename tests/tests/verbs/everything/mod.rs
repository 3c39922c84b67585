//! Nothing is silent. Programs that together use everything the library wraps are run once to count what C is asked, and
//! then again and again: with each call failing in its turn, with everything that destroys failing, and with each number
//! that C fills in being one that no header knows. Each time there is a typed error that names its verb, or another way;
//! what was made is destroyed exactly once, or is leaked and said to be, where destroying fails; and nothing panics.
//!
//! `coverage.rs` asserts that the programs leave no function out.
#![expect(clippy::unwrap_used, reason = "a test")]

mod acts;
mod coverage;
mod endings;
mod failures;
mod values;

use sideway_tests::recording::{Call, Recording};

use acts::{ACTS, Act};

/// Runs a program as it is meant to be, and lets `look` at what it did.
#[track_caller]
fn whole<T>(act: Act, look: impl FnOnce(&Recording) -> T) -> T {
    let recording = Recording::new();
    (act.run)(&recording).unwrap_or_else(|error| panic!("{}: {error}", act.name));
    assert_eq!(recording.violations(), [""; 0], "{}", act.name);
    assert_eq!(recording.live(), [], "{}", act.name);
    look(&recording)
}

/// Whether the call ends what was made: where it fails, nothing else can be done than to leak.
fn ends(call: &Call) -> bool {
    ["destroy", "dealloc", "dereg", "close", "free"].iter().any(|word| call.verb.starts_with(word))
}
