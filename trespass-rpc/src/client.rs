//! Building blocks of the clients that the macro generates.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_core::Stream;
use tower_service::Service;

use crate::body::Body;
use crate::call::{Call, Replies, Reply};
use crate::codec::{CodecError, Decode, Encode};
use crate::error::{BoxError, Certainty, Error, RpcError, Status};
use crate::service::{Context, Response};
use crate::wire::{Metadata, MethodInfo};

/// Options for all calls of a client.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    timeout: Option<Duration>,
    metadata: Arc<Metadata>,
}

impl CallOptions {
    /// Limits the time of each call.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Adds metadata to each call.
    ///
    /// # Errors
    ///
    /// A key has more than 255 bytes, or the metadata has more than 8 KiB in total.
    pub fn metadata(mut self, key: &str, value: &[u8]) -> Result<Self, RpcError> {
        if Arc::make_mut(&mut self.metadata).insert(key, value) {
            return Ok(self);
        }
        Err(RpcError::new(Status::TOO_LARGE, Certainty::NotSent, "metadata can have at most 8 KiB; shorten it"))
    }

    /// Applies the deadline and the trace context of a request to the calls of this client. Use it if a handler makes
    /// these calls to serve that request.
    #[must_use]
    pub fn within(mut self, context: &Context) -> Self {
        if let Some(remaining) = context.remaining() {
            self.timeout = Some(self.timeout.map_or(remaining, |timeout| timeout.min(remaining)));
        }
        if let Some(trace) = context.metadata().trace() {
            Arc::make_mut(&mut self.metadata).set_trace(trace);
        }
        self
    }

    /// Creates a call with these options.
    pub fn call(&self, method: &'static MethodInfo) -> Call {
        Call::with(method, self.timeout, Arc::clone(&self.metadata))
    }
}

/// Makes a call on a `tower` service.
///
/// # Errors
///
/// The service's error.
pub async fn send<S>(mut service: S, call: Call) -> Result<Reply, RpcError>
where
    S: Service<Call, Response = Reply>,
    S::Error: Into<BoxError>,
{
    std::future::poll_fn(|task| service.poll_ready(task))
        .await
        .map_err(|error| foreign(error.into(), Certainty::NotSent))?;
    service.call(call).await.map_err(|error| foreign(error.into(), Certainty::Unknown))
}

/// Makes a call that has one answer.
///
/// # Errors
///
/// The error of the handler, or of the library.
pub async fn unary<C, S, T, E>(service: S, call: Call) -> Result<T, Error<E>>
where
    C: for<'b> Decode<'b, T> + for<'b> Decode<'b, E>,
    S: Service<Call, Response = Reply>,
    S::Error: Into<BoxError>,
{
    let reply = send(service, call).await?;
    if reply.status == Status::OK {
        Ok(decode::<C, T>(&reply.body)?)
    } else {
        Err(Error::Application(decode::<C, E>(&reply.body)?))
    }
}

/// Makes a call whose answer is a stream.
pub fn streaming<C, S, T, E>(service: S, mut call: Call) -> Answers<C, T, E>
where
    S: Service<Call, Response = Reply> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    call.is_streaming = true;
    Answers { state: Answering::Starting(Box::pin(send(service, call))), types: PhantomData }
}

/// Sets the stream of items that a call sends.
pub fn set_items<C, T>(call: &mut Call, items: impl Stream<Item = T> + Send + 'static)
where
    C: Encode<T> + 'static,
{
    struct Encoded<C, S>(S, PhantomData<fn() -> C>);

    impl<C: Encode<S::Item>, S: Stream> Stream for Encoded<C, Pin<Box<S>>> {
        type Item = Result<Body, CodecError>;

        fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
            self.0.as_mut().poll_next(task).map(|item| {
                item.map(|item| {
                    let mut body = Body::new();
                    C::encode(&item, body.writer()).map(|()| body)
                })
            })
        }
    }

    call.items = Some(Box::pin(Encoded::<C, _>(Box::pin(items), PhantomData)));
}

fn decode<C: for<'b> Decode<'b, T>, T>(body: &[u8]) -> Result<T, RpcError> {
    C::decode(body).map_err(|error| RpcError::new(Status::INVALID, Certainty::Unknown, error.0))
}

/// Converts the error of a `tower` layer. An error of this crate's own type is returned unchanged.
fn foreign(error: BoxError, certainty: Certainty) -> RpcError {
    match error.downcast::<RpcError>() {
        Ok(error) => *error,
        Err(error) => RpcError::new(Status::UNAVAILABLE, certainty, error.to_string()),
    }
}

type Types<C, T, E> = PhantomData<fn() -> (C, T, E)>;
type Started = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

/// The answers of a method that returns a stream. Dropping it cancels the call.
#[must_use = "streams do nothing unless polled"]
pub struct Answers<C, T, E> {
    state: Answering,
    types: Types<C, T, E>,
}

enum Answering {
    Starting(Started),
    Running(Replies),
    Over,
}

impl<C, T, E> fmt::Debug for Answers<C, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl<C, T, E> Answers<C, T, E>
where
    C: for<'b> Decode<'b, T> + for<'b> Decode<'b, E>,
{
    /// Creates a stream whose only item is this error.
    pub fn failed(error: RpcError) -> Self {
        Self { state: Answering::Starting(Box::pin(std::future::ready(Err(error)))), types: PhantomData }
    }

    /// Returns the next answer; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<T, Error<E>>> {
        std::future::poll_fn(|task| self.poll(task)).await
    }

    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<Option<Result<T, Error<E>>>> {
        loop {
            match &mut self.state {
                Answering::Starting(started) => match started.as_mut().poll(task) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(Reply { stream: Some(replies), .. })) => self.state = Answering::Running(replies),
                    Poll::Ready(Ok(_)) => self.state = Answering::Over,
                    Poll::Ready(Err(error)) => {
                        self.state = Answering::Over;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                },
                Answering::Running(replies) => {
                    return replies.poll_next(task).map(|item| {
                        Some(match item? {
                            Ok((Status::OK, body)) => decode::<C, T>(&body).map_err(Error::Rpc),
                            Ok((_, body)) => Err(decode::<C, E>(&body).map_or_else(Error::Rpc, Error::Application)),
                            Err(error) => Err(Error::Rpc(error)),
                        })
                    });
                }
                Answering::Over => return Poll::Ready(None),
            }
        }
    }
}

impl<C, T, E> Stream for Answers<C, T, E>
where
    C: for<'b> Decode<'b, T> + for<'b> Decode<'b, E>,
{
    type Item = Result<T, Error<E>>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(task)
    }
}

/// The stream of items that the caller of a method sends.
pub struct Items<T> {
    link: Arc<crate::endpoint::Link>,
    /// The number of the call.
    id: u32,
    /// Whether the stream has not ended.
    is_open: bool,
    types: PhantomData<fn() -> T>,
    /// The function that decodes an item with the call's codec.
    decode: fn(&[u8]) -> Result<T, CodecError>,
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl<T> Items<T> {
    /// Creates the stream of the items that the caller of this request sends.
    pub fn of<C: for<'b> Decode<'b, T>>(context: &Context) -> Self {
        let (link, id) = context.link_and_id();
        Self {
            link: Arc::clone(link),
            id,
            is_open: context.has_items(),
            types: PhantomData,
            decode: |bytes| C::decode(bytes),
        }
    }

    /// Returns the next item, or `None` after the last one. If an item cannot be decoded, or if the call ends before
    /// the stream does, returns an error and ends the stream.
    pub async fn next(&mut self) -> Option<Result<T, CodecError>> {
        std::future::poll_fn(|task| self.poll(task)).await
    }

    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<Option<Result<T, CodecError>>> {
        if !self.is_open {
            return Poll::Ready(None);
        }
        let Poll::Ready(item) = self.link.poll_request_item(self.id, task) else { return Poll::Pending };
        let decoded = item.map(|item| match item {
            Ok(item) => (self.decode)(&item),
            Err(ended) => Err(CodecError(ended.detail.into_owned())),
        });
        self.is_open = matches!(decoded, Some(Ok(_)));
        Poll::Ready(decoded)
    }
}

impl<T> Stream for Items<T> {
    type Item = Result<T, CodecError>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(task)
    }
}

/// Sends the items of a handler's stream to the caller, and returns the answer that ends the stream.
pub async fn answer_stream<C, T, E>(context: &Context, stream: impl Stream<Item = Result<T, E>>) -> Response
where
    C: Encode<T> + Encode<E>,
{
    let mut stream = std::pin::pin!(stream);
    loop {
        match std::future::poll_fn(|task| stream.as_mut().poll_next(task)).await {
            None => return Response::end(),
            Some(Err(error)) => return Response::of::<C, T, E>(&Err(error)),
            Some(Ok(item)) => {
                let mut body = Body::new();
                if let Err(error) = <C as Encode<T>>::encode(&item, body.writer()) {
                    return Response::failed(Status::INVALID, &error.0);
                }
                let most = context.link_and_id().0.longest();
                if body.len() > most {
                    let text = format!("an item has {} bytes; the caller accepts at most {most}", body.len());
                    return Response::failed(Status::TOO_LARGE, &text);
                }
                if !std::future::poll_fn(|task| context.poll_send(&body, task)).await {
                    return Response::failed(Status::CANCELLED, "");
                }
            }
        }
    }
}
