//! The measuring loops and the parts that they share: prepared requests, memory slots, polling.
//!
//! ```text
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
//! interval   computes the figures of intervals while a step runs
//! tsc        time stamps in ticks of a clock
//! cause      describes failed completions with their usual cause
//! ```

mod bandwidth;
pub(crate) mod cas_check;
mod cause;
mod gap;
mod interval;
mod latency;
mod list_queue;
pub(crate) mod pattern;
mod poll;
mod qp_driver;
mod receive;
mod request;
mod signal;
#[cfg(test)]
mod tests;
mod tsc;
mod wait;

pub(crate) use self::bandwidth::{Send, Window, send};
pub(crate) use self::cause::{Failed, with_peer};
pub(crate) use self::gap::Gap;
pub(crate) use self::interval::{Intervals, SHORTEST, length};
pub(crate) use self::latency::{LossTimeout, Samples, Turns, Until, acknowledged, by_memory, by_receives};
pub(crate) use self::list_queue::ListQueue;
pub(crate) use self::poll::Poll;
pub(crate) use self::qp_driver::{Places, Posting, QpDriver};
pub(crate) use self::receive::{Intake, Opening, Receives, Refill, receive, take_count};
pub(crate) use self::request::{
    Any, Chosen, DatagramSend, DatagramSendImmediate, Memory, Message, PeerQueue, Read, Request, SendPlain, Target,
    Write,
};
pub(crate) use self::signal::Signal;
pub(crate) use self::tsc::{Scale, Tsc};
pub(crate) use self::wait::{CompletionEvents, Waiting};
