//! Typed RPC over RDMA, or over TCP if RDMA is unavailable.
//!
//! The attribute [`service`] generates a client and a server from a trait:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use trespass_rpc::{Context, Error, Server};
//!
//! #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
//! #[error("no name")]
//! pub struct NoName;
//!
//! #[trespass_rpc::service(name = "example.Greeter")]
//! pub trait Greeter {
//!     /// Returns a line for this name.
//!     #[idempotent]
//!     async fn greet(&self, cx: &Context, name: &str) -> Result<String, NoName>;
//! }
//!
//! struct Polite;
//!
//! impl Greeter for Polite {
//!     async fn greet(&self, cx: &Context, name: &str) -> Result<String, NoName> {
//!         if name.is_empty() { Err(NoName) } else { Ok(format!("hello {name}, over {}", cx.transport())) }
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let serving = Server::new(GreeterServer::new(Polite)).bind("127.0.0.1:0").await?;
//!
//!     let greeter = GreeterClient::connect(&serving.local_addr().to_string()).await?;
//!     println!("{}", greeter.transport()); // RDMA if both sides support it, otherwise TCP, and why
//!     assert!(greeter.greet("Ada").await?.starts_with("hello Ada"));
//!
//!     let refused = greeter.greet("").await;
//!     assert!(matches!(refused, Err(Error::Application(NoName)))); // the handler's own error; others are `Error::Rpc`
//!     Ok(())
//! }
//! ```
//!
//! On a machine without an RDMA NIC, this program uses TCP. With the feature `softrnic` it uses a NIC in software.
//!
//! | to | use |
//! |---|---|
//! | declare a service | [`service`] |
//! | serve it | [`Server`], [`Serving`]; what a handler receives: [`Context`], [`Attachment`], [`Target`], [`Items`] |
//! | call it | the generated client over a [`Channel`], or over a [`Pool`], which reconnects; [`CallOptions`]; [`Answers`] |
//! | pass long bytes without a copy | [`Attachment`] (to the handler), [`Target`] (from the handler), [`Memory`] |
//! | call without a runtime | [`blocking`] |
//! | set the transport, limits and time-outs | [`Options`], [`Endpoint`] |
//! | understand a failure | [`Error`], [`RpcError`], [`Status`], [`Certainty`] |
//! | run `tonic` over RDMA | `tonic`, with the feature `tonic` |
//! | observe, check health, add layers of `tower` | `Observed`, [`HealthReporter`], [`Layered`] |
//!
//! Features: `softrnic` (the NIC in software), `tls`, `tonic`, `tracing`, `metrics`, `prost`, `rkyv`.

pub mod blocking;
mod body;
mod bulk;
mod call;
mod channel;
mod client;
mod codec;
mod endpoint;
mod error;
mod health;
mod memory;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod observe;
mod pool;
mod server;
mod service;

// The code that the macro generates refers to `trespass_rpc`, also for the services that this crate defines.
extern crate self as trespass_rpc;

pub mod core;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(feature = "tonic")]
pub mod tonic;
pub mod wire;

pub use body::Body;
pub use bulk::{Attachment, Target};
pub use call::{Call, CallFuture, Reply};
pub use channel::Channel;
pub use client::{Answers, CallOptions, Items};
#[cfg(feature = "prost")]
pub use codec::Protobuf;
#[cfg(feature = "rkyv")]
pub use codec::Rkyv;
pub use codec::{Codec, CodecError, Decode, Encode, Postcard, Raw};
#[cfg(feature = "tls")]
pub use endpoint::Tls;
pub use endpoint::{Driver, Endpoint, Options, Security, TransportInfo};
pub use error::{BoxError, Certainty, Error, RpcError, Status};
pub use futures_core::Stream;
pub use health::{Health, HealthReporter, Healths, HealthsClient, HealthsServer};
pub use memory::Memory;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub use observe::Observed;
pub use pool::{Pool, PoolFuture};
#[cfg(feature = "tls")]
pub use rustls;
pub use server::{Server, Serving};
pub use service::{Context, Handler, Layered, Pair, Request, Response};
/// The crate of [`Options::worker`].
pub use trespass;
/// Generates a client and a server from a trait.
///
/// ```
/// use trespass_rpc::{Attachment, Context, Items, Stream, Target};
///
/// #[trespass_rpc::service(name = "example.Files")]
/// pub trait Files {
///     /// One answer. A retry is safe, so `RpcError::is_retryable` allows it.
///     #[idempotent]
///     async fn length(&self, cx: &Context, name: &str) -> Result<u64, String>;
///     /// Bytes of the caller, which the handler reads: over RDMA with one READ.
///     async fn write(&self, name: &str, at: u64, bytes: Attachment) -> Result<(), String>;
///     /// Memory of the caller, which the handler fills: over RDMA with one WRITE.
///     async fn read(&self, name: &str, at: u64, into: Target) -> Result<u64, String>;
///     /// A stream of answers.
///     fn list(&self, prefix: &str) -> impl Stream<Item = Result<String, String>>;
///     /// A stream from the caller.
///     async fn delete(&self, names: Items<String>) -> Result<u64, String>;
/// }
/// ```
///
/// For a trait `Files`, it generates in the same module, with the same visibility:
///
/// - `FilesServer<S>`, for an `S` that implements the trait: [`Server::new`]`(FilesServer::new(value))`. It is a
///   [`Handler`], and a `tower` service of [`Request`]s. `FilesServer::shared` takes an `Arc<S>` that the program
///   keeps.
/// - `FilesClient`, with a method for each method of the trait: `FilesClient::connect("host:port")`. `FilesClient::new`
///   takes a [`Pool`] or any other `tower` service of [`Call`]s, and `with` sets [`CallOptions`].
/// - `METHODS` of both, the table of names and types. [`Channel::check`] compares it with the peer's.
///
/// The trait gets the supertraits `Send`, `Sync` and `'static`, and its futures and streams must be `Send`.
///
/// # Arguments of the attribute
///
/// - `name = "…"`: the name on the wire, in front of each method's name; by default the trait's name.
/// - `codec = …`: how values become bytes; by default [`Postcard`], for types with serde's traits. The others are
///   [`Raw`], `Protobuf` (feature `prost`) and `Rkyv` (feature `rkyv`).
///
/// # Methods
///
/// A method is `async fn name(&self, …) -> Result<T, E>`, or `fn name(&self, …) -> impl Stream<Item = Result<T, E>>`.
/// `E` is an error of the service, which the caller gets as [`Error::Application`]; if it is a `std::error::Error`, `?`
/// works on the caller's result. A method has no generic parameters. After `&self` come these, of which `&Context` is the
/// first:
///
/// | type | what the caller passes | what the handler gets |
/// |---|---|---|
/// | `&Context` | nothing | the remaining time, metadata, transport, memory of a pool, a channel to the caller |
/// | [`Attachment`] | bytes, or a part of a [`Memory`] | a value that reads them |
/// | [`Target`] | a part of a [`Memory`] | a value that writes to it |
/// | [`Items`]`<T>`, at most one | any `Stream<Item = T>` | a stream of results |
/// | any other | a value that the codec encodes; it may be borrowed, such as `&str` | the value |
///
/// `#[idempotent]` marks a method that may run twice.
pub use trespass_rpc_macros::service;
pub use wire::{Metadata, MethodInfo};

/// The items that the code generated by the macro uses.
#[doc(hidden)]
pub mod generated {
    pub use tower_service::Service;

    pub use crate::client::{answer_stream, send, set_items, streaming, unary};

    /// Computes the 64-bit FNV-1a hash, used for the numbers of methods and for their types.
    pub const fn hash(text: &str) -> u64 {
        let bytes = text.as_bytes();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        hash
    }
}
