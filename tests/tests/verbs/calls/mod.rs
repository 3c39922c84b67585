//! What the data path and the control path hand to C, and what they make of its answers, seen from the recording device:
//! no hardware, no library.
#![expect(clippy::unwrap_used, reason = "a test")]

mod choices;
mod errors;
#[cfg(not(miri))] // takes minutes there: many threads, many rounds
mod events;
mod refusals;
mod requests;
#[cfg(not(miri))]
mod threads;
