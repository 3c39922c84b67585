//! [`Listener`] and [`Stream`], with the methods of `TcpListener` and `TcpStream` of `std::net`, and [`Reader`] in the
//! place of `BufReader`.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use trespass::net::Stream;
//!
//! let mut stream = Stream::connect("server:7777")?;
//! stream.write_all(b"hello")?;
//! let mut reply = [0; 5];
//! stream.read_exact(&mut reply)?;
//! # std::io::Result::Ok(())
//! ```

mod listener;
mod reader;
mod stream;

pub use listener::{Incoming, Listener};
pub use reader::Reader;
pub use std::net::Shutdown;
pub use stream::Stream;
