//! mlx5 and EFA over the recording device: what their libraries are asked, what is refused, what is said where they are
//! missing.
#![expect(clippy::unwrap_used, reason = "a test")]

mod efa;
mod faults;
mod missing;
mod mlx5;
