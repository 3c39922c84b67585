//! What a server runs: handlers, by hand or by the macro.

use std::io;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use crate::body::Body;
use crate::bulk::{Attachment, Target};
use crate::channel::Channel;
use crate::codec::{Codec, Decode, Encode};
use crate::endpoint::{Arrived, Outcome, Runner, TransportInfo, runner};
use crate::error::Status;
use crate::memory::Memory;
use crate::wire::{Bulk, BulkKind, Flags, Metadata, MethodInfo, PeerMethod};

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
    /// Attachments and targets that the handler has not taken, in reverse.
    bulks: Vec<Bulky>,
    /// Why they could not be read.
    fault: Option<String>,
}

#[derive(Debug)]
enum Bulky {
    Attachment(Attachment),
    Target(Target),
}

impl Request {
    /// Hash of the method's name.
    pub fn method(&self) -> u64 {
        self.0.method
    }

    /// The context, and the encoded arguments.
    pub fn into_parts(mut self) -> (Context, Body) {
        let body = std::mem::take(&mut self.0.body);
        if self.0.flags.bulks() == 0 {
            return (Context { arrived: self.0, bulks: Vec::new(), fault: None }, body);
        }
        match self.split(&body) {
            Ok((bulks, arguments)) => (Context { arrived: self.0, bulks, fault: None }, arguments),
            Err(fault) => (Context { arrived: self.0, bulks: Vec::new(), fault: Some(fault) }, Body::new()),
        }
    }

    /// Attachments and targets, and the encoded arguments.
    fn split(&self, body: &[u8]) -> Result<(Vec<Bulky>, Body), String> {
        let (link, id) = (&self.0.link, self.0.id);
        let most = link.shared.options().limits.attachment;
        let (descriptors, arguments, mut inline) =
            Bulk::split(body, self.0.flags.bulks()).map_err(|error| error.to_string())?;
        let mut bulks = Vec::with_capacity(self.0.flags.bulks());
        for (index, bulk) in descriptors.enumerate() {
            if bulk.length > most {
                return Err(format!("an attachment or a target of {} bytes; {most} are allowed", bulk.length));
            }
            bulks.push(match bulk.kind {
                BulkKind::Inline => {
                    // `split` has found that they are there.
                    let (bytes, rest) = inline.split_at(bulk.length as usize);
                    inline = rest;
                    Bulky::Attachment(Attachment::inline(bytes))
                }
                BulkKind::Read | BulkKind::Pull => Bulky::Attachment(Attachment::remote(link, id, index, &bulk)),
                BulkKind::Write | BulkKind::Push => Bulky::Target(Target::remote(link, id, index, &bulk)),
            });
        }
        bulks.reverse();
        Ok((bulks, Body::copy(arguments)))
    }
}

impl Response {
    /// An answer of a status that the library defines, with a text for the caller.
    pub fn failed(status: Status, text: &str) -> Self {
        Self(Outcome { status, is_refused: false, body: Body::copy(text.as_bytes()) })
    }

    /// The answer for a method that is not served.
    pub fn unimplemented() -> Self {
        Self(Outcome { status: Status::UNIMPLEMENTED, is_refused: true, body: Body::default() })
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
            Ok(()) => Self(Outcome { status, is_refused: false, body }),
            Err(error) => Self::failed(Status::INVALID, &error.0),
        }
    }

    /// The answer that ends a stream.
    pub fn end() -> Self {
        Self(Outcome { status: Status::OK, is_refused: false, body: Body::default() })
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

    /// Memory for attachments and targets of this connection.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`
    pub fn alloc(&self, length: usize) -> io::Result<Memory> {
        self.arrived.link.memory.alloc(length)
    }

    /// The next attachment of the call.
    ///
    /// # Errors
    ///
    /// The answer for the caller: there is none.
    pub fn take_attachment(&mut self) -> Result<Attachment, Response> {
        match self.bulks.pop() {
            Some(Bulky::Attachment(attachment)) => Ok(attachment),
            _ => Err(Response::failed(Status::INVALID, "an attachment is missing")),
        }
    }

    /// The next target of the call.
    ///
    /// # Errors
    ///
    /// The answer for the caller: there is none.
    pub fn take_target(&mut self) -> Result<Target, Response> {
        match self.bulks.pop() {
            Some(Bulky::Target(target)) => Ok(target),
            _ => Err(Response::failed(Status::INVALID, "a target is missing")),
        }
    }

    /// Decodes the arguments.
    ///
    /// # Errors
    ///
    /// The answer for the caller: the codec is another one, or the bytes do not decode.
    pub fn decode<'b, C: Decode<'b, T>, T>(&self, body: &'b [u8]) -> Result<T, Response> {
        if let Some(fault) = &self.fault {
            return Err(Response::failed(Status::INVALID, fault));
        }
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
