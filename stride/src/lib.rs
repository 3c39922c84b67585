//! The parts of `stride-perf`, the RDMA benchmark built on sideway.
//!
//! ```text
//! cli       the command line, made into a plan
//! plan      what is measured, and where: the same for both sides
//! control   the two sides talk over TCP or rdma_cm: who they are, the plan, where the queue pairs are, results
//! endpoint  a side: device, memory, queue pairs; of sideway, or a fake for tests
//! run       the loops
//! stats     what comes out of them
//! report    tables, JSON, CSV, plots, comparisons
//! program   what the program does with all of these
//! ```

pub mod cli;
pub mod control;
pub mod endpoint;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod plan;
pub mod program;
pub mod report;
mod run;
pub mod stats;
