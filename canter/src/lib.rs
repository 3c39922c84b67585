#![doc = include_str!("../README.md")]

mod cm;
mod connect;
mod connection;
mod core;
mod error;
mod executor;
mod fifo;
mod link;
mod memory;
mod message;
mod ready;
mod request;
mod sleep;
mod table;
mod tasks;

pub use self::connect::{Listener, Request};
pub use self::connection::{Batch, Connection, Unconnected};
pub use self::core::{Builder, Core};
pub use self::error::{Error, NotConnected};
pub use self::executor::{JoinHandle, Sleep};
pub use self::memory::{Buf, Exposed, Get, Pool, Remote, Rights};
pub use self::message::Message;
