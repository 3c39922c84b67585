//! Calls for programs without an async runtime: the driver runs on its own thread, and the calling thread waits.
//!
//! ```no_run
//! use trespass_rpc::{Attachment, Stream, blocking};
//!
//! # #[derive(Debug, serde::Serialize, serde::Deserialize, thiserror::Error)]
//! # #[error("failed")]
//! # pub struct Failed;
//! # #[trespass_rpc::service]
//! # pub trait Kv {
//! #     async fn put(&self, key: &str, value: Attachment) -> Result<u64, Failed>;
//! #     fn list(&self, prefix: &str) -> impl Stream<Item = Result<String, Failed>>;
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kv = KvClient::over(blocking::connect("host:7175")?)?;
//! blocking::wait(kv.put("fruit/apple", Attachment::from(b"green".to_vec())))?;
//! for entry in blocking::iter(kv.list("fruit/")) {
//!     println!("{}", entry?);
//! }
//! # Ok(()) }
//! ```

use std::cell::OnceCell;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_core::Stream;
use trespass::PerProcess;

use crate::channel::Channel;
use crate::endpoint::{Endpoint, Options};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread. Do not call it in a task of a runtime: it would block the runtime's thread.
pub fn wait<F: Future>(future: F) -> F::Output {
    let new = || Waker::from(Arc::new(Unpark(thread::current())));
    thread_local!(static WAKER: OnceCell<Waker> = const { OnceCell::new() });
    // While the thread exits, a value in another thread-local may still wait.
    let waker = WAKER.try_with(|waker| waker.get_or_init(new).clone()).unwrap_or_else(|_| new());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// Converts a stream to an iterator that waits for each item.
pub fn iter<S: Stream>(stream: S) -> impl Iterator<Item = S::Item> {
    struct Waiting<S>(Pin<Box<S>>);

    impl<S: Stream> Iterator for Waiting<S> {
        type Item = S::Item;

        fn next(&mut self) -> Option<S::Item> {
            wait(std::future::poll_fn(|context| self.0.as_mut().poll_next(context)))
        }
    }

    Waiting(Box::pin(stream))
}

/// Connects over RDMA if both sides support it, otherwise over TCP. Uses the endpoint of this process, whose driver
/// thread starts with the first connection.
///
/// # Errors
///
/// See [`Channel::connect`].
pub fn connect(address: &str) -> io::Result<Channel> {
    wait(Channel::connect_on(&endpoint()?, address))
}

/// Returns the endpoint of this process. Its thread runs until the process exits.
fn endpoint() -> io::Result<Endpoint> {
    static ENDPOINT: PerProcess<Mutex<Option<Endpoint>>> = PerProcess::new(Mutex::new(None), Box::default);
    let mut endpoint = ENDPOINT.get().lock().unwrap_or_else(PoisonError::into_inner);
    match &*endpoint {
        Some(endpoint) => Ok(endpoint.clone()),
        None => Ok(endpoint.insert(Endpoint::thread(&Options::default())?).clone()),
    }
}
