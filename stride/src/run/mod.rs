//! The measuring loops and the parts that they share: prepared requests, memory slots, polling.
//!
//! ```text
//! request    an operation as a type, so that a loop has no choice to make
//! list_queue lists of requests that are built once
//! qp_driver  a queue pair and its memory slots: posts requests and counts completions
//! poll       polls completion queues of either kind
//! wait       sleeps until a completion event
//! bandwidth  keeps many messages in flight
//! receive    the receiver of sends and of writes with immediate data
//! pattern    contents of messages, if they are validated
//! cas_check  values of compare-and-swaps, if they are validated
//! latency    one message in flight, or two sides in turn
//! gap        pauses between messages
//! interval   progress reports while a step runs
//! tsc        timestamps in ticks
//! cause      failed completions and their usual cause
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
