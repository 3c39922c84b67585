//! The steps that are timed.

use std::time::{Duration, Instant};

use sideway::rdmacm::communication_manager::EventType;

/// What is done for all connections before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    CreateId,
    Bind,
    ResolveAddress,
    ResolveRoute,
    CreateQueuePair,
    Connect,
    Disconnect,
    Destroy,
}

impl Step {
    /// In the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CreateId => "create id",
            Self::Bind => "bind addr",
            Self::ResolveAddress => "resolve addr",
            Self::ResolveRoute => "resolve route",
            Self::CreateQueuePair => "create qp",
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Destroy => "destroy",
        }
    }

    /// While it goes on.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::CreateId => "creating id",
            Self::Bind => "binding source address",
            Self::ResolveAddress => "resolving address",
            Self::ResolveRoute => "resolving route",
            Self::CreateQueuePair => "creating qp",
            Self::Connect => "connecting",
            Self::Disconnect => "disconnecting",
            Self::Destroy => "destroying id",
        }
    }

    /// The event that it ends with; the others end with their call.
    pub(crate) fn event(self) -> Option<EventType> {
        match self {
            Self::ResolveAddress => Some(EventType::AddressResolved),
            Self::ResolveRoute => Some(EventType::RouteResolved),
            Self::Connect => Some(EventType::Established),
            Self::Disconnect => Some(EventType::Disconnected),
            Self::CreateId | Self::Bind | Self::CreateQueuePair | Self::Destroy => None,
        }
    }
}

/// When a step of one connection began and ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) began: Option<Instant>,
    pub(crate) ended: Option<Instant>,
}

impl Span {
    pub(crate) fn took(self) -> Option<Duration> {
        Some(self.ended?.saturating_duration_since(self.began?))
    }
}
