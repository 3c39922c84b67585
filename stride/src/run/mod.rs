//! The loops, and what they need: requests that are known before a loop begins, places in memory, the polling of completions.
//!
//! ```text
//! request    an operation as a type, so that a loop has no choice to make
//! lane       a queue pair with its places: posts, and counts what is done
//! poll       completions of either kind of queue
//! wait       sleeping until there are some
//! bandwidth  many messages under way
//! receive    the other side of messages that take receives
//! pattern    what messages hold where their bytes are checked
//! chain      what compare-and-swaps exchange where they are checked
//! latency    one message under way, or two sides in turn
//! gap        the pause between two of them
//! interval   what is told of all that while it goes on
//! stamp      when, in ticks
//! cause      what a failed completion means
//! ```

mod bandwidth;
mod cause;
pub(crate) mod chain;
mod gap;
mod interval;
mod lane;
mod latency;
pub(crate) mod pattern;
mod poll;
mod receive;
mod request;
mod signal;
mod stamp;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use self::bandwidth::{Send, Window, send};
pub(crate) use self::cause::{Failed, with_peer};
pub(crate) use self::gap::Gap;
pub(crate) use self::interval::{Intervals, SHORTEST, length};
pub(crate) use self::lane::{Lane, Places};
pub(crate) use self::latency::{Patience, Samples, Turns, Until, acknowledged, by_memory, by_receives};
pub(crate) use self::poll::Poll;
pub(crate) use self::receive::{Intake, Opening, Receives, Refill, receive, take_count};
pub(crate) use self::request::{
    AtPeer, AtTarget, ChainedSwap, CompareSwap, DatagramSend, DatagramSendImmediate, FetchAdd, Memory, Read, Request,
    SendImmediate, SendPlain, Target, To, Write, WriteImmediate,
};
pub(crate) use self::signal::Signal;
pub(crate) use self::stamp::{Scale, Stamp};
pub(crate) use self::wait::Bell;
