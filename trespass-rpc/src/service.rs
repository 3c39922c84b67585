//! What a server runs: handlers, by hand or by the macro.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use crate::body::Body;
use crate::channel::Channel;
use crate::codec::{Codec, Decode, Encode};
use crate::endpoint::{Arrived, Outcome, Runner, TransportInfo, runner};
use crate::error::Status;
use crate::wire::{Flags, Metadata, MethodInfo, PeerMethod};

/// Serves methods. The macro implements it for `…Server`.
pub trait Handler: Send + Sync + 'static {
    /// What it serves.
    fn methods(&self) -> Vec<MethodInfo>;

    /// Runs a request. The future is dropped when the caller gives up, or when its time is over.
    fn call(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// A request that arrived.
#[derive(Debug)]
pub struct Request(Arrived);

/// The answer to a request.
#[derive(Debug)]
pub struct Response(Outcome);

/// What a handler has of a request beside its arguments.
#[derive(Debug)]
pub struct Context {
    arrived: Arrived,
}

impl Request {
    /// Hash of the method's name.
    pub fn method(&self) -> u64 {
        self.0.method
    }

    /// The context, and the encoded arguments.
    pub fn into_parts(mut self) -> (Context, Body) {
        let body = std::mem::take(&mut self.0.body);
        (Context { arrived: self.0 }, body)
    }
}

impl Response {
    /// An answer of a status that the library defines, with a text for the caller.
    pub fn failed(status: Status, text: &str) -> Self {
        Self(Outcome { status, body: Body::copy(text.as_bytes()) })
    }

    /// The answer for a method that is not served.
    pub fn unimplemented() -> Self {
        Self(Outcome { status: Status::UNIMPLEMENTED, body: Body::default() })
    }

    /// The answer for a result or an error of the method.
    pub fn of<C, T, E>(result: &Result<T, E>) -> Self
    where
        C: Encode<T> + Encode<E>,
    {
        let mut body = Body::new();
        let (status, encoded) = match result {
            Ok(value) => (Status::OK, <C as Encode<T>>::encode(value, body.writer())),
            Err(error) => (Status::APPLICATION, <C as Encode<E>>::encode(error, body.writer())),
        };
        match encoded {
            Ok(()) => Self(Outcome { status, body }),
            Err(error) => Self::failed(Status::INVALID, &error.0),
        }
    }

    /// The answer that ends a stream.
    pub fn end() -> Self {
        Self(Outcome { status: Status::OK, body: Body::default() })
    }
}

impl Context {
    /// When the caller stops waiting.
    pub fn deadline(&self) -> Option<Instant> {
        self.arrived.deadline.map(|micros| self.arrived.link.shared.instant(micros))
    }

    /// How long the caller still waits.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What the caller has sent beside the arguments.
    pub fn metadata(&self) -> Metadata {
        Metadata::from_bytes(&self.arrived.meta)
    }

    /// What the connection runs on, and the peer's address.
    pub fn transport(&self) -> &TransportInfo {
        &self.arrived.link.info
    }

    /// A channel to the caller, for calls in the other direction.
    pub fn caller(&self) -> Channel {
        Channel::of_link(Arc::clone(&self.arrived.link))
    }

    /// Decodes the arguments.
    ///
    /// # Errors
    ///
    /// The answer for the caller: the codec is another one, or the bytes do not decode.
    pub fn decode<'b, C: Decode<'b, T>, T>(&self, body: &'b [u8]) -> Result<T, Response> {
        if self.arrived.flags.codec() != <C as Codec>::ID {
            let text = format!("the arguments have codec {}, the server has {}", self.arrived.flags.codec(), C::ID);
            return Err(Response::failed(Status::INVALID, &text));
        }
        C::decode(body).map_err(|error| Response::failed(Status::INVALID, &error.0))
    }

    pub(crate) fn has_items(&self) -> bool {
        self.arrived.flags.has(Flags::STREAM_IN)
    }

    /// Sends an item to the caller; false if the call has ended.
    pub(crate) fn poll_send(&self, item: &[u8], task: &TaskContext<'_>) -> Poll<bool> {
        self.arrived.link.poll_respond(self.arrived.id, item, task)
    }

    pub(crate) fn link_and_id(&self) -> (&Arc<crate::endpoint::Link>, u32) {
        (&self.arrived.link, self.arrived.id)
    }
}

/// Two handlers as one.
#[derive(Debug)]
pub struct Pair<A, B>(pub(crate) A, pub(crate) B);

impl<A: Handler, B: Handler> Handler for Pair<A, B> {
    fn methods(&self) -> Vec<MethodInfo> {
        let mut methods = self.0.methods();
        methods.extend(self.1.methods());
        methods
    }

    fn call(&self, request: Request) -> impl Future<Output = Response> + Send {
        let method = request.method();
        // A hash that both have is an error when the server starts.
        let is_first = self.0.methods().iter().any(|known| known.id == method);
        let (first, second) =
            if is_first { (Some(self.0.call(request)), None) } else { (None, Some(self.1.call(request))) };
        async move {
            match (first, second) {
                (Some(first), _) => first.await,
                (_, Some(second)) => second.await,
                (None, None) => Response::unimplemented(),
            }
        }
    }
}

/// Runs a handler's requests.
///
/// # Errors
///
/// Two methods have one hash.
pub(crate) fn runner_of(handler: impl Handler) -> Result<Box<dyn Runner>, String> {
    let mut methods = handler.methods();
    methods.sort_by_key(|method| method.id);
    if let Some([first, second]) = methods.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(format!("{} and {} have one number; rename one of them", first.name, second.name));
    }
    let described =
        methods.iter().map(|method| PeerMethod { id: method.id, shape: method.shape, name: method.name.to_owned() });
    let handler = Arc::new(handler);
    Ok(runner(described.collect(), move |arrived| {
        let handler = Arc::clone(&handler);
        async move { handler.call(Request(arrived)).await.0 }
    }))
}
