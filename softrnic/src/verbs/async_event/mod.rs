//! `struct ibv_async_event`.

mod acknowledgements;
mod source;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rdma_mummy_sys::{ibv_cq, ibv_event_type, ibv_qp, ibv_srq};

pub(crate) use acknowledgements::{Acknowledged, Acknowledgements};
pub(crate) use source::Source;

use super::port::PORT;

/// The object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Queue(*mut ibv_cq),
    Pair(*mut ibv_qp),
    Shared(*mut ibv_srq),
    Port(u8),
    Device,
}

/// A queued event.
#[derive(Clone, Debug)]
pub(crate) struct AsyncEvent {
    pub(crate) kind: ibv_event_type,
    pub(crate) element: Element,
    /// Counts the events of the object that the program has taken.
    pub(super) taken: Option<Arc<AtomicU32>>,
}

// SAFETY: the pointers are only dereferenced by the program that takes the event.
unsafe impl Send for AsyncEvent {}

impl AsyncEvent {
    /// Creates an event that reports a change of the GID table, which contains the addresses of the host.
    pub(crate) fn of_addresses() -> Self {
        Self { kind: ibv_event_type::IBV_EVENT_GID_CHANGE, element: Element::Port(PORT), taken: None }
    }

    /// Creates an event of a port. Ports are numbered from 1.
    pub(crate) fn of_port(kind: ibv_event_type, port: u8) -> Self {
        Self { kind, element: Element::Port(port), taken: None }
    }

    pub(crate) fn of_device(kind: ibv_event_type) -> Self {
        Self { kind, element: Element::Device, taken: None }
    }
}
