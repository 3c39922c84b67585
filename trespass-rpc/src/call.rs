//! A call as a value, and its future: what `tower` layers see.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;

use crate::body::Body;
use crate::channel::Channel;
use crate::codec::{Codec, CodecError, Encode};
use crate::core::Outgoing;
use crate::endpoint::{Link, ReplyItem};
use crate::error::{Certainty, RpcError, Status};
use crate::wire::{Flags, Metadata, MethodInfo};

/// Items that a caller sends.
pub(crate) type Sending = Pin<Box<dyn Stream<Item = Result<Body, CodecError>> + Send>>;

/// A call to make: the request of [`Channel`] and of the layers on it.
pub struct Call {
    /// What is called.
    pub method: &'static MethodInfo,
    /// How long the call may take; it travels with the call.
    pub timeout: Option<Duration>,
    /// Metadata.
    pub metadata: Arc<Metadata>,
    pub(crate) codec: u8,
    pub(crate) body: Body,
    pub(crate) items: Option<Sending>,
    /// The answer is a stream: the future is ready when the call has begun.
    pub(crate) is_streaming: bool,
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

/// Items that a handler sends, encoded, then how it ended.
#[derive(Debug)]
pub(crate) struct Replies(Running);

impl Call {
    /// A call without arguments.
    pub fn new(method: &'static MethodInfo) -> Self {
        Self {
            method,
            timeout: None,
            metadata: Arc::default(),
            codec: 0,
            body: Body::new(),
            items: None,
            is_streaming: false,
        }
    }

    /// Sets the arguments.
    ///
    /// # Errors
    ///
    /// The arguments do not encode.
    pub fn encode<C: Encode<T>, T: ?Sized>(&mut self, arguments: &T) -> Result<(), RpcError> {
        self.codec = <C as Codec>::ID;
        C::encode(arguments, self.body.writer())
            .map_err(|error| RpcError::new(Status::INVALID, Certainty::NotSent, error.0))
    }

    /// The call once more, for another try. `None` if it has items of a stream.
    pub fn try_clone(&self) -> Option<Self> {
        self.items.is_none().then(|| Self {
            metadata: Arc::clone(&self.metadata),
            body: self.body.clone(),
            items: None,
            ..*self
        })
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("method", &self.method.name).field("body", &self.body).finish_non_exhaustive()
    }
}

/// A call that was made. Dropping it cancels the call at the peer.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct CallFuture(State);

#[derive(Debug)]
enum State {
    New(Channel, Call),
    Running(Running),
    Over,
}

impl CallFuture {
    pub(crate) fn new(channel: Channel, call: Call) -> Self {
        Self(State::New(channel, call))
    }
}

impl Future for CallFuture {
    type Output = Result<Reply, RpcError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let State::New(..) = self.0 {
            let State::New(channel, call) = std::mem::replace(&mut self.0, State::Over) else { return Poll::Pending };
            let is_streaming = call.is_streaming;
            let running = Running::start(channel, call, task)?;
            if is_streaming {
                return Poll::Ready(Ok(Reply {
                    status: Status::OK,
                    body: Body::default(),
                    stream: Some(Replies(running)),
                }));
            }
            let has_items = running.items.is_some();
            self.0 = State::Running(running);
            if !has_items {
                return Poll::Pending;
            }
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
    is_over: bool,
}

struct Items {
    stream: Sending,
    /// Waits for credit.
    next: Option<Body>,
}

impl std::fmt::Debug for Items {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl Running {
    fn start(channel: Channel, call: Call, task: &TaskContext<'_>) -> Result<Self, RpcError> {
        let mut flags = Flags::new(call.codec, 0);
        if call.method.is_idempotent {
            flags.0 |= Flags::IDEMPOTENT;
        }
        if call.items.is_some() {
            flags.0 |= Flags::STREAM_IN;
        }
        let shared = &channel.link().shared;
        let outgoing = Outgoing {
            method: call.method.id,
            flags,
            deadline: call.timeout.map(|timeout| shared.micros(Instant::now() + timeout)),
            meta: call.metadata.as_bytes(),
            parts: &[&call.body],
        };
        let id = channel.link().start(&outgoing, task)?;
        let items = call.items.map(|stream| Items { stream, next: None });
        Ok(Self { channel, id, items, is_over: false })
    }

    fn link(&self) -> &Arc<Link> {
        self.channel.link()
    }

    /// Sends items as far as there are some, and credit.
    fn send_items(&mut self, task: &mut TaskContext<'_>) -> Result<(), RpcError> {
        while let Some(items) = &mut self.items {
            let item = match items.next.take() {
                Some(item) => item,
                None => match items.stream.as_mut().poll_next(task) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(Ok(item))) => item,
                    Poll::Ready(Some(Err(error))) => {
                        return Err(RpcError::new(Status::INVALID, Certainty::Unknown, error.0));
                    }
                    Poll::Ready(None) => {
                        if self.channel.link().poll_end_items(self.id, task).is_ready() {
                            self.items = None;
                        }
                        return Ok(());
                    }
                },
            };
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

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.link().forget(self.id);
        }
    }
}

impl Replies {
    /// The next item with [`Status::OK`], or the handler's error with [`Status::APPLICATION`]; `None` after the last one.
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

/// What an answer is for the caller.
fn reply(outcome: Result<(Status, Body), RpcError>) -> Result<(Status, Body), RpcError> {
    let (status, body) = outcome?;
    match status {
        Status::OK | Status::APPLICATION => Ok((status, body)),
        status => {
            let is_refused = matches!(
                status,
                Status::UNIMPLEMENTED
                    | Status::OVERLOADED
                    | Status::UNAVAILABLE
                    | Status::UNAUTHENTICATED
                    | Status::MISMATCH
            );
            let certainty = if is_refused { Certainty::Refused } else { Certainty::Unknown };
            Err(RpcError::new(status, certainty, String::from_utf8_lossy(&body).into_owned()))
        }
    }
}
