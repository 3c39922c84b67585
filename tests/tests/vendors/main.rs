//! mlx5 and EFA on the recording device: the calls of their libraries, the refusals, and the errors if they are
//! missing.
#![expect(clippy::unwrap_used, reason = "a test")]

mod efa;
mod faults;
mod missing;
mod mlx5;
