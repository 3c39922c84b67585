//! Calls with other libraries: TLS, layers of `tower`, spans, metrics, and codecs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod observed;
mod tls;
mod tonic;
mod tower;
