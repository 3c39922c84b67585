//! The loops of `stride-perf` that measure, and everything else that runs once per message or per byte.
//!
//! The loops are generic, and only functions that are not generic call them. So the loops are compiled in this crate,
//! which the release profile optimizes. It does not optimize the other parts of `stride-perf`, which then take a
//! fraction of the time to build.
//!
//! ```text
//! step       one step of a thread: selects the loop and the types with which it is compiled
//! request    the operations as types, so that a loop need not select the operation at run time
//! list_queue lists of requests that are built once and posted many times
//! qp_driver  drives a queue pair and its memory slots: posts requests and counts completions
//! poll       polls completion queues with the basic or the extended interface
//! wait       lets a thread sleep until a completion event
//! signal     the state that the measuring threads share with the thread that waits for them
//! bandwidth  the bandwidth loop, which keeps many messages in flight
//! receive    the receiver of sends and of writes with immediate data
//! pattern    the contents of messages that are validated
//! cas_check  the values of compare-and-swaps that are validated
//! latency    the latency loops, which have one message in flight at a time
//! gap        the pauses between messages
//! tsc        time stamps in ticks of a clock
//! tally      statistics of the samples
//! message    the loops for messages of the trespass library (feature `msg`)
//! amount     the length of a run
//! cause      describes failed completions with their usual cause
//! ```

mod amount;
mod bandwidth;
pub mod cas_check;
mod cause;
mod gap;
mod latency;
mod list_queue;
#[cfg(feature = "msg")]
mod message;
pub mod pattern;
mod poll;
mod qp_driver;
mod receive;
mod request;
mod signal;
mod step;
mod tally;
#[cfg(test)]
mod tests;
mod tsc;
mod wait;

pub use self::amount::Amount;
pub use self::bandwidth::{Window, in_pairs};
pub use self::cause::{Failed, with_peer};
pub use self::gap::Gap;
pub use self::latency::{LossTimeout, Samples};
#[cfg(feature = "msg")]
pub use self::message::Messages;
pub use self::qp_driver::slot_offsets;
pub use self::receive::Intake;
pub use self::request::{DatagramSend, Target};
pub use self::signal::{Moment, SampleWindow, Signal};
pub use self::step::{
    Arrival, Bandwidth, CompletionQueues, End, Latency, Measure, Operation, Outcome, Pair, Pairs, Step,
};
pub use self::tally::{Summary, Tally};
pub use self::tsc::{Scale, Tsc};
pub use self::wait::CompletionEvents;
