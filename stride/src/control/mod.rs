//! The control channel. Over TCP, the two sides exchange their versions, the plan, the addresses of the queue pairs,
//! the start of each step and the results.
//!
//! ```text
//! client                                server
//! hello                                 hello             both: program and version
//! request                                                 the client requests the plan
//!                                       note …, offer     the server has opened its side
//! path, ends                            ends              the server sends last, because both can be long
//! connected                             connected
//! size                                  ready             for each size: the server has posted receives
//! go                                                      both sides start the step
//! progress …, done                      progress …, interval …, figures
//!                                       counted           if counters are requested
//!                                       checked           if messages are validated
//! end
//! ```
//!
//! Either side can end the exchange with `error`, which contains a text for the peer to print. Each wait for a message
//! is limited by the time-out, so each side sends `progress` while its step runs.

mod client;
mod connection;
mod failure;
mod frame;
mod greeting;
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
pub(crate) use self::frame::{Frame, Partial, Unframed};
pub use self::loopback::loopback;
pub(crate) use self::message::decode;
pub use self::message::{Done, Hello, Message, Offer, Reason, Request};
pub(crate) use self::options::tune;
pub use self::options::{
    Carrier, ControlOptions, Family, LEAST_TIMEOUT, Met, PORT, connect, connect_reporting, listen,
};
pub use self::path::{Near, choose, choose_all};
pub use self::server::{Event, Host, serve_one};
pub use self::service::{Stop, serve};
pub use self::wire::Wire;

#[cfg(test)]
mod tests;
