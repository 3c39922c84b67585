//! Connections, listeners and streams for async programs.
//!
//! ```
//! use trespass::tokio::{Acceptor, Connection};
//!
//! # trespass::Handle::global()?;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let acceptor = Acceptor::bind("127.0.0.1:0").await?;
//! let client = Connection::connect(acceptor.local_addr()).await?;
//! let server = acceptor.accept().await?;
//! client.send(b"hello").await?;
//! assert_eq!(server.recv().await?.as_deref(), Some(&b"hello"[..]));
//! client.close(0, "").await?;
//! assert!(server.recv().await?.is_none());
//! # std::io::Result::Ok(()) })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! A runtime of tokio that has I/O enabled drives the worker: see
//! [`Handle::drive_in_tokio`](crate::Handle::drive_in_tokio). In other runtimes, the worker's own thread drives it.
//!
//! # Cancellation
//!
//! A future that is dropped before it is ready has no effect, except those of [`Connection::close`],
//! [`Connection::shutdown`], [`Batch::submit`] and [`revoke`]: what they have started goes on. In particular, a dropped
//! [`Connection::recv`] loses no message, and a message whose [`Connection::send`] was dropped is not sent. The futures
//! are `Send`, and several tasks may call the methods of a connection at the same time.
//!
//! # Drop
//!
//! Dropping a connection or a stream does not block: the worker closes it in the background. Messages and bytes that
//! were accepted still arrive, also if `main` returns: the end of the process waits for them, at most for the
//! [linger time](crate::Options::linger).

mod acceptor;
mod batch;
mod connection;
mod reader;
mod sorted;
mod stream;
mod waiting;

pub use acceptor::Acceptor;
pub use batch::{Batch, revoke};
pub use connection::Connection;
pub use reader::Reader;
pub use stream::{Listener, Stream};
