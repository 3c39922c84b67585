//! The control channel: the two sides exchange over TCP who they are, what is measured, where the queue pairs are, when each step
//! begins, and what came of it.
//!
//! ```text
//! client                                server
//! hello                                 hello             who is there: told apart from whatever else may listen
//! request                                                 the plan
//!                                       note …, offer     its side is open
//! path, ends                            ends              the server's when it has the client's: both can be long
//! connected                             connected
//! size                                  ready             for each size: what is to be received is posted
//! go                                                      both begin
//! progress …, done                      progress …, interval …, figures
//!                                       counted           where counters are asked for
//!                                       checked           where messages are checked
//! end
//! ```
//!
//! Either side ends it with `error` and a sentence, which the other one shows. Nothing is waited for longer than the time-out; a side
//! whose step runs says so by `progress`.

mod client;
mod connection;
mod failure;
mod frame;
mod interval_check;
mod keepalive;
mod loopback;
mod message;
mod options;
mod path;
mod server;
mod service;
mod wire;

pub use self::client::{Outcome, Step, Watch, measure};
pub use self::connection::Connection;
pub use self::failure::{Cause, Failure};
pub use self::frame::PROTOCOL;
pub use self::loopback::loopback;
pub use self::message::{Done, Hello, Message, Offer, Reason, Request};
pub use self::options::{Carrier, ControlOptions, Family, LEAST_TIMEOUT, Met, PORT, connect, connect_telling, listen};
pub use self::path::{Near, choose, choose_all};
pub use self::server::{Event, Host, serve_one};
pub use self::service::{Stop, serve};
pub use self::wire::Wire;

#[cfg(test)]
mod tests;
