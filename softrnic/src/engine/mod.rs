//! The NIC itself: memory, queues and the rules of the transport services. Nothing here knows the C API's objects;
//! what is to be told to the world goes through the traits of [`events`].

pub(crate) mod address;
mod blocks;
pub(crate) mod completion;
pub(crate) mod domain;
pub(crate) mod errno;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod packet;
mod prefetch;
pub(crate) mod queue_pair;
pub(crate) mod quota;
pub(crate) mod receive;
pub(crate) mod request;
pub(crate) mod timer;
pub(crate) mod usage;
pub(crate) mod work;

use std::sync::PoisonError;

/// What a lock guards is whole also where a thread has panicked with it held: nothing is left half-changed.
pub(crate) fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
