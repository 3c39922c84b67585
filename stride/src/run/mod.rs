//! The loops, and what they need: requests that are known before a loop begins, places in memory, the polling of completions.
//!
//! ```text
//! request    an operation as a type, so that a loop has no choice to make
//! qp_driver  a queue pair with its places: posts, and counts what is done
//! poll       completions of either kind of queue
//! wait       sleeping until there are some
//! bandwidth  many messages under way
//! receive    the other side of messages that take receives
//! pattern    what messages hold where their bytes are checked
//! cas_check  what compare-and-swaps exchange where they are checked
//! latency    one message under way, or two sides in turn
//! gap        the pause between two of them
//! interval   what is told of all that while it goes on
//! tsc        when, in ticks
//! cause      what a failed completion means
//! ```

mod bandwidth;
pub(crate) mod cas_check;
mod cause;
mod gap;
mod interval;
mod latency;
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
pub(crate) use self::latency::{Patience, Samples, Turns, Until, acknowledged, by_memory, by_receives};
pub(crate) use self::poll::Poll;
pub(crate) use self::qp_driver::{Places, QpDriver};
pub(crate) use self::receive::{Intake, Opening, Receives, Refill, receive, take_count};
pub(crate) use self::request::{
    Any, Chosen, DatagramSend, DatagramSendImmediate, Memory, Message, PeerQueue, Read, Request, SendPlain, Target,
    Write,
};
pub(crate) use self::signal::Signal;
pub(crate) use self::tsc::{Scale, Tsc};
pub(crate) use self::wait::{Bell, Waiting};
