//! Many hosts: measures every ordered pair of the ranks of a job, and names what is slow.
//!
//! ```text
//! launcher     rank, size and job of this process, from the variables of its launcher
//! rendezvous   the place at which the ranks meet rank 0
//! schedule     the rounds: which tests run at the same time
//! message      the messages between rank 0 and the ranks
//! coordinator  rank 0: admits ranks, starts the tests of a round, and collects their results
//! member       any rank: which tests it serves and measures
//! document     the results as JSON
//! polish       separates a matrix into effects of senders, receivers and pairs
//! verdict      names the hosts, paths and rails that are slow
//! limits       compares the results with limits and with an earlier mesh
//! table        the results as text, and as CSV
//! ```
//!
//! These modules contain neither I/O nor a clock nor threads; `program::mesh` has these. A test between two ranks is the
//! same as one between `stride-perf` and a server: a rank starts a server for one test, and another one measures.

pub mod cell;
pub mod coordinator;
pub mod document;
pub mod judgement;
pub mod launcher;
pub mod limits;
pub mod member;
pub mod message;
mod polish;
pub mod rendezvous;
pub mod schedule;
pub mod table;
pub mod verdict;

/// The number of a rank.
pub type Rank = u32;

/// Maximum number of ranks.
pub const MOST_RANKS: u32 = 4096;
