//! The arguments of C on the data path and the control path, and the handling of its results, on the recording device:
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
