//! A call as a value, and its future, so that `tower` layers can process them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_core::Stream;
use smallvec::SmallVec;
use tower_service::Service;

use crate::body::Body;
use crate::bulk::{Attachment, Target};
use crate::channel::Channel;
use crate::codec::{Codec, CodecError, Encode};
use crate::core::Outgoing;
use crate::endpoint::{Keys, Link, Local, Parts, ReplyItem};
use crate::error::{Certainty, RpcError, Status};
use crate::wire::{BULK, Flags, Metadata, MethodInfo};

/// Maximum number of attachments and targets of a call.
const MOST: usize = 15;

/// A stream of the encoded items that a caller sends.
pub(crate) type Sending = Pin<Box<dyn Stream<Item = Result<Body, CodecError>> + Send>>;

/// A call to make: the request type of [`Channel`] and of layers around it.
pub struct Call {
    /// The method to call.
    pub method: &'static MethodInfo,
    /// The time limit of the call. The request contains it, so that the server can apply it too.
    pub timeout: Option<Duration>,
    /// Metadata.
    pub metadata: Arc<Metadata>,
    pub(crate) codec: u8,
    pub(crate) body: Body,
    pub(crate) items: Option<Sending>,
    pub(crate) attachments: SmallVec<[Bulky; 2]>,
    /// Whether the answer is a stream. If it is, the future of the call is ready as soon as the call has begun.
    pub(crate) is_streaming: bool,
}

/// An attachment or a target of the caller.
#[derive(Debug)]
pub(crate) enum Bulky {
    Attachment(Attachment),
    Target(Target),
}

/// The answer of a call.
#[derive(Debug)]
pub struct Reply {
    /// [`Status::OK`] or [`Status::APPLICATION`].
    pub status: Status,
    /// The encoded result, or the handler's error.
    pub body: Body,
    pub(crate) stream: Option<Replies>,
}

/// The stream of encoded items that a handler sends. The handler's result follows the last item and ends the stream.
#[derive(Debug)]
pub(crate) struct Replies(Running);

impl Call {
    /// Creates a call without arguments.
    pub fn new(method: &'static MethodInfo) -> Self {
        Self::with(method, None, Arc::default())
    }

    pub(crate) fn with(method: &'static MethodInfo, timeout: Option<Duration>, metadata: Arc<Metadata>) -> Self {
        Self {
            method,
            timeout,
            metadata,
            codec: 0,
            body: Body::new(),
            items: None,
            attachments: SmallVec::new(),
            is_streaming: false,
        }
    }

    /// Adds an attachment.
    pub fn attach(&mut self, attachment: Attachment) {
        self.attachments.push(Bulky::Attachment(attachment));
    }

    /// Adds a target.
    pub fn target(&mut self, target: Target) {
        self.attachments.push(Bulky::Target(target));
    }

    /// Sets the arguments.
    ///
    /// # Errors
    ///
    /// The arguments cannot be encoded.
    pub fn encode<C: Encode<T>, T: ?Sized>(&mut self, arguments: &T) -> Result<(), RpcError> {
        self.codec = <C as Codec>::ID;
        C::encode(arguments, self.body.writer())
            .map_err(|error| RpcError::new(Status::INVALID, Certainty::NotSent, error.0))
    }

    /// Copies the call for a retry. Returns `None` if the call has attachments, targets or a stream of items.
    pub fn try_clone(&self) -> Option<Self> {
        (self.items.is_none() && self.attachments.is_empty()).then(|| Self {
            metadata: Arc::clone(&self.metadata),
            body: self.body.clone(),
            items: None,
            attachments: SmallVec::new(),
            ..*self
        })
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("method", &self.method.name).field("body", &self.body).finish_non_exhaustive()
    }
}

/// The future of a call. Dropping it cancels the call at the peer.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture(State);

#[derive(Debug)]
enum State {
    New(Channel, Call),
    /// The call waits until the driver has granted keys to its memory.
    Opening(Option<Box<Opening>>),
    Running(Running),
    Over,
}

impl CallFuture {
    pub(crate) fn new(channel: Channel, call: Call) -> Self {
        Self(State::New(channel, call))
    }
}

impl Service<Call> for Channel {
    type Response = Reply;
    type Error = RpcError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> CallFuture {
        CallFuture::new(self.clone(), call)
    }
}

/// A call that waits until the driver has granted keys to its memory.
struct Opening {
    channel: Channel,
    call: Call,
    described: Described,
    keys: Pin<Box<dyn Future<Output = Option<Keys>> + Send>>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("call", &self.call).finish_non_exhaustive()
    }
}

/// A call's attachments and targets.
#[derive(Debug, Default)]
struct Described {
    bulks: SmallVec<[Local; 2]>,
    keys: Option<Keys>,
}

impl Described {
    /// Takes the attachments and targets out of a call. Appends the bytes of short attachments to the body of the call.
    fn new(call: &mut Call, link: &Link) -> Result<Self, RpcError> {
        let mut described = Self::default();
        if call.attachments.len() > MOST {
            let text = "a call can have at most 15 attachments and targets";
            return Err(RpcError::new(Status::TOO_LARGE, Certainty::NotSent, text));
        }
        let most = link.peer().map_or(0, |peer| peer.attachment);
        for attachment in std::mem::take(&mut call.attachments) {
            let local = match attachment {
                Bulky::Attachment(attachment) => attachment.local(link, &mut call.body)?,
                Bulky::Target(target) => target.local()?,
            };
            if local.len() > most {
                let text =
                    format!("an attachment or a target has {} bytes; the peer accepts at most {most}", local.len());
                return Err(RpcError::new(Status::TOO_LARGE, Certainty::NotSent, text));
            }
            described.bulks.push(local);
        }
        Ok(described)
    }

    /// Whether the request contains the bytes of all attachments, and the call has no targets.
    fn is_inline(&self) -> bool {
        self.bulks.iter().all(|local| local.memory.is_none())
    }

    fn descriptors(&self) -> SmallVec<[[u8; BULK]; 2]> {
        let mut descriptors = SmallVec::new();
        for (index, local) in self.bulks.iter().enumerate() {
            let key = self.keys.as_ref().and_then(|keys| keys.get(index));
            descriptors.push(local.describe(key.as_ref()).to_bytes());
        }
        descriptors
    }
}

impl CallFuture {
    fn start(
        &mut self,
        channel: Channel,
        call: &mut Call,
        described: Described,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<Reply, RpcError>> {
        let is_streaming = call.is_streaming;
        let running = Running::start(channel, call, described, task)?;
        if is_streaming {
            let stream = Some(Replies(running));
            return Poll::Ready(Ok(Reply { status: Status::OK, body: Body::default(), stream }));
        }
        let has_items = running.items.is_some();
        self.0 = State::Running(running);
        if has_items { Pin::new(self).poll(task) } else { Poll::Pending }
    }
}

impl Future for CallFuture {
    type Output = Result<Reply, RpcError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let State::New(..) = self.0 {
            let State::New(channel, mut call) = std::mem::replace(&mut self.0, State::Over) else {
                return Poll::Pending;
            };
            if call.attachments.is_empty() {
                return self.start(channel, &mut call, Described::default(), task);
            }
            let described = Described::new(&mut call, channel.link())?;
            if described.is_inline() {
                return self.start(channel, &mut call, described, task);
            }
            let opens: Parts = described.bulks.iter().map(Local::opens).collect();
            if opens.iter().all(Option::is_none) {
                return self.start(channel, &mut call, described, task);
            }
            let link = Arc::clone(channel.link());
            let keys = Box::pin(async move { link.open(opens).await });
            self.0 = State::Opening(Some(Box::new(Opening { channel, call, described, keys })));
        }
        if let State::Opening(opening) = &mut self.0 {
            let Some(mut opened) = opening.take() else { return Poll::Pending };
            let Poll::Ready(keys) = opened.keys.as_mut().poll(task) else {
                *opening = Some(opened);
                return Poll::Pending;
            };
            self.0 = State::Over;
            let Opening { channel, mut call, mut described, .. } = *opened;
            described.keys = keys;
            return self.start(channel, &mut call, described, task);
        }
        let State::Running(running) = &mut self.0 else {
            return Poll::Ready(Err(RpcError::new(Status::INTERNAL, Certainty::Unknown, "the call has ended already")));
        };
        running.send_items(task)?;
        let Poll::Ready(outcome) = running.link().poll_answer(running.id, task) else { return Poll::Pending };
        running.is_over = true;
        self.0 = State::Over;
        Poll::Ready(reply(outcome).map(|(status, body)| Reply { status, body, stream: None }))
    }
}

/// A call in flight.
#[derive(Debug)]
struct Running {
    channel: Channel,
    id: u32,
    items: Option<Items>,
    /// The keys to the call's memory.
    keys: Option<Keys>,
    is_over: bool,
}

struct Items {
    /// The stream of the items to send; `None` after its last item.
    stream: Option<Sending>,
    /// An item for which credit is not available yet.
    next: Option<Body>,
}

impl std::fmt::Debug for Items {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl Running {
    fn start(
        channel: Channel,
        call: &mut Call,
        described: Described,
        task: &TaskContext<'_>,
    ) -> Result<Self, RpcError> {
        let mut flags = Flags::new(call.codec, described.bulks.len());
        if call.method.is_idempotent {
            flags.0 |= Flags::IDEMPOTENT;
        }
        if call.items.is_some() {
            flags.0 |= Flags::STREAM_IN;
        }
        let shared = &channel.link().shared;
        let descriptors = described.descriptors();
        let outgoing = Outgoing {
            method: call.method.id,
            flags,
            deadline: call.timeout.map(|timeout| shared.after(timeout)),
            meta: call.metadata.as_bytes(),
            parts: &[descriptors.as_flattened(), &call.body],
        };
        let bulks = if described.is_inline() { Box::default() } else { described.bulks.into_boxed_slice() };
        let id = channel.link().start(&outgoing, bulks, task)?;
        let items = call.items.take().map(|stream| Items { stream: Some(stream), next: None });
        Ok(Self { channel, id, items, keys: described.keys, is_over: false })
    }

    fn link(&self) -> &Arc<Link> {
        self.channel.link()
    }

    /// Sends the items that are ready and for which there is credit.
    fn send_items(&mut self, task: &mut TaskContext<'_>) -> Result<(), RpcError> {
        while let Some(items) = &mut self.items {
            let item = match items.next.take() {
                Some(item) => item,
                None => match items.stream.as_mut().map_or(Poll::Ready(None), |stream| stream.as_mut().poll_next(task))
                {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(Ok(item))) => item,
                    Poll::Ready(Some(Err(error))) => {
                        return Err(self.give_up(Status::INVALID, error.0));
                    }
                    Poll::Ready(None) => {
                        items.stream = None;
                        if self.channel.link().poll_end_items(self.id, task).is_ready() {
                            self.items = None;
                        }
                        return Ok(());
                    }
                },
            };
            let most = self.channel.link().longest();
            if item.len() > most {
                let text = format!("an item has {} bytes; the peer accepts at most {most}", item.len());
                return Err(self.give_up(Status::TOO_LARGE, text));
            }
            match self.channel.link().poll_send(self.id, &item, task) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => self.items = None,
                Poll::Pending => {
                    items.next = Some(item);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Running {
    /// Cancels the call because an item cannot be sent, and without it the stream would be incomplete.
    fn give_up(&mut self, status: Status, text: String) -> RpcError {
        self.items = None;
        self.forget();
        RpcError::new(status, Certainty::Unknown, text)
    }

    fn forget(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.channel.link().forget(self.id);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.forget();
        if let Some(keys) = self.keys.take() {
            self.link().revoke(self.id, keys);
        }
    }
}

impl Replies {
    /// Returns the next item with [`Status::OK`], or the handler's error with [`Status::APPLICATION`]. Returns `None`
    /// after the last item.
    pub(crate) fn poll_next(&mut self, task: &mut TaskContext<'_>) -> Poll<Option<Result<(Status, Body), RpcError>>> {
        let running = &mut self.0;
        if running.is_over {
            return Poll::Ready(None);
        }
        running.send_items(task)?;
        match running.link().poll_reply_item(running.id, task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(ReplyItem::Item(body)) => Poll::Ready(Some(Ok((Status::OK, body)))),
            Poll::Ready(ReplyItem::End(outcome)) => {
                running.is_over = true;
                match reply(outcome) {
                    Ok((Status::OK, _)) => Poll::Ready(None),
                    other => Poll::Ready(Some(other)),
                }
            }
        }
    }
}

/// Converts an answer to the caller's result.
fn reply(outcome: Result<(Status, Body), RpcError>) -> Result<(Status, Body), RpcError> {
    let (status, body) = outcome?;
    match status {
        Status::OK | Status::APPLICATION => Ok((status, body)),
        // If the peer's library rejected the call, its answer was converted to an error earlier.
        status => Err(RpcError::new(status, Certainty::Unknown, String::from_utf8_lossy(&body).into_owned())),
    }
}
