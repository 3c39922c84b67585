//! Typed RPC over RDMA, or over TCP if RDMA is unavailable.
//!
//! | layer | module | what |
//! |---|---|---|
//! | 5 | `pool`, `blocking`, `health`, `observe` | extensions of clients and servers |
//! | 4 | `client`, `server` | the interface for programs, and for the code of the macro [`service`] |
//! | 3 | `call`, `channel`, `service` | calls and requests as values, for `tower` |
//! | 2 | `endpoint` | the driver, which runs connections of the crate `trespass`, and handlers |
//! | 1 | [`core`] | a connection as a state machine: no I/O, clock, threads or unsafe code |
//! | 0 | [`wire`], `codec`, `error`, `body` | frames, values, failures, bytes |

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

// Needed by the macro's code for this crate's own services.
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
pub use trespass_rpc_macros::service;
pub use wire::{Metadata, MethodInfo};

/// Items that the macro's code uses.
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
