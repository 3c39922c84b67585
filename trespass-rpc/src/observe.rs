//! Records spans (`tracing`) and metrics (`metrics`) for the calls of clients and servers.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tower_service::Service;

use crate::call::{Call, Reply};
use crate::client::send;
use crate::error::{BoxError, RpcError, Status};
use crate::service::{Handler, Request, Response};
use crate::wire::MethodInfo;

/// How much earlier than the deadline of a request its caller may end it: both measure the time by their own clocks.
const EARLY: Duration = Duration::from_millis(10);

/// Records spans and metrics of calls. It wraps any `tower` service of a client, or a [`Handler`] of a server.
///
/// - feature `tracing`: a span `call` or `request` for each call, with the fields `method` and `status`;
/// - feature `metrics`: the counter `rpc_calls` or `rpc_requests`, by `method` and `status`, and the histogram
///   `rpc_calls_seconds` or `rpc_requests_seconds`, by `method`.
///
/// A call whose future is dropped has the status [`Status::CANCELLED`]. A request has it too if its caller drops the call;
/// if its deadline passes or its handler panics, it has the caller's status, `DEADLINE` or `INTERNAL`. If the answer is a
/// stream, a client records the time until the stream starts.
#[derive(Clone, Debug)]
pub struct Observed<S>(S);

impl<S> Observed<S> {
    /// Wraps a service or a handler.
    pub fn new(inner: S) -> Self {
        Self(inner)
    }
}

/// A running call or request. Its status and duration are recorded when this value is dropped.
struct Observation {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    #[cfg(feature = "metrics")]
    numbers: (&'static str, &'static str, &'static str, Instant),
    /// The status, once the call has ended by itself.
    status: Option<Status>,
    /// The time at which a request ends because its caller waits no longer.
    deadline: Option<Instant>,
}

impl Observation {
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "names of numbers"))]
    fn new(is_client: bool, method: &'static str, deadline: Option<Instant>) -> Self {
        let (counter, histogram) =
            if is_client { ("rpc_calls", "rpc_calls_seconds") } else { ("rpc_requests", "rpc_requests_seconds") };
        Self {
            #[cfg(feature = "tracing")]
            span: match is_client {
                true => tracing::info_span!("call", method, status = tracing::field::Empty),
                false => tracing::info_span!("request", method, status = tracing::field::Empty),
            },
            #[cfg(feature = "metrics")]
            numbers: (counter, histogram, method, Instant::now()),
            status: None,
            deadline,
        }
    }

    async fn run<T>(mut self, future: impl Future<Output = T>, status: impl FnOnce(&T) -> Status) -> T {
        #[cfg(feature = "tracing")]
        let future = tracing::Instrument::instrument(future, self.span.clone());
        let output = future.await;
        self.status = Some(status(&output));
        output
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        // Without a status, the future was dropped, or has panicked.
        let status = self.status.unwrap_or_else(|| match self.deadline {
            _ if std::thread::panicking() => Status::INTERNAL,
            Some(deadline) if Instant::now() + EARLY >= deadline => Status::DEADLINE,
            _ => Status::CANCELLED,
        });
        #[cfg(feature = "tracing")]
        self.span.record("status", status.0);
        #[cfg(feature = "metrics")]
        {
            let (counter, histogram, method, begun) = self.numbers;
            metrics::counter!(counter, "method" => method, "status" => status.0.to_string()).increment(1);
            metrics::histogram!(histogram, "method" => method).record(begun.elapsed().as_secs_f64());
        }
    }
}

impl<S> Service<Call> for Observed<S>
where
    S: Service<Call, Response = Reply> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    type Response = Reply;
    type Error = RpcError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        // This service is always ready. It waits for the inner service within the call, so the recorded duration
        // includes that wait.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let observation = Observation::new(true, call.method.name, None);
        let status =
            |outcome: &Result<Reply, RpcError>| outcome.as_ref().map_or_else(|error| error.status, |it| it.status);
        Box::pin(observation.run(send(self.0.clone(), call), status))
    }
}

impl<H: Handler> Handler for Observed<H> {
    fn methods(&self) -> Vec<MethodInfo> {
        self.0.methods()
    }

    async fn call(&self, request: Request) -> Response {
        let method = request.method();
        let name = self.0.methods().iter().find(|known| known.id == method).map_or("unknown", |known| known.name);
        Observation::new(false, name, request.deadline()).run(self.0.call(request), Response::status).await
    }
}
