//! What the ping-pongs over reliable connections share: the port that they play from, waiting for the next message, and what
//! they tell at the end.

mod port;
mod statistics;
mod wait;

pub use port::{LocalPort, PortChoice, random_psn};
pub use statistics::{Clock, Statistics};
pub use wait::{Wait, advice};
