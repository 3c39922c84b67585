//! The transport services and their operations.

/// The transport service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    ReliableConnection,
    UnreliableConnection,
    UnreliableDatagram,
    /// The service of an XRC initiator.
    XrcSend,
    /// The service of an XRC target.
    XrcReceive,
    /// The reliable connection of iWARP. Each connection has its own stream. The stream neither loses nor repeats
    /// messages, so the responder responds only to messages that need a response.
    Iwarp,
}

impl Service {
    /// Whether messages are acknowledged and arrive in order, and whether errors are reported to the requester.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::ReliableConnection | Self::XrcSend | Self::XrcReceive | Self::Iwarp)
    }

    /// Returns the service that the peer's QP must have.
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::XrcSend => Self::XrcReceive,
            Self::XrcReceive => Self::XrcSend,
            same => same,
        }
    }

    /// Whether the send queue of a QP of this service supports the operation (see the table in `ibv_post_send(3)`).
    pub(crate) fn sends(self, operation: Operation) -> bool {
        use Operation as O;
        match self {
            Self::ReliableConnection | Self::XrcSend => true,
            Self::UnreliableConnection => matches!(
                operation,
                O::Send
                    | O::SendImmediate { .. }
                    | O::SendInvalidate { .. }
                    | O::Write { .. }
                    | O::WriteImmediate { .. }
                    | O::LocalInvalidate { .. }
                    | O::Bind
            ),
            Self::UnreliableDatagram => matches!(operation, O::Send | O::SendImmediate { .. }),
            Self::XrcReceive => false,
            // iWARP has no message for these operations.
            Self::Iwarp => !matches!(operation, O::AtomicWrite { .. } | O::Flush { .. }),
        }
    }
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send,
    /// `immediate` has the byte order that the program has chosen, which by convention is big-endian.
    SendImmediate {
        immediate: u32,
    },
    SendInvalidate {
        rkey: u32,
    },
    Write {
        address: u64,
        rkey: u32,
    },
    WriteImmediate {
        address: u64,
        rkey: u32,
        immediate: u32,
    },
    Read {
        address: u64,
        rkey: u32,
    },
    CompareSwap {
        address: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        address: u64,
        rkey: u32,
        add: u64,
    },
    /// The eight bytes are the inline data of the request.
    AtomicWrite {
        address: u64,
        rkey: u32,
    },
    Flush {
        address: u64,
        rkey: u32,
        length: u64,
        placement: u8,
        level: u8,
    },
    LocalInvalidate {
        rkey: u32,
    },
    Bind,
}

impl Operation {
    /// Whether the operation counts against `max_rd_atomic`. The response to such an operation contains data.
    pub(crate) fn is_read_or_atomic(self) -> bool {
        matches!(self, Self::Read { .. }) || self.is_atomic()
    }

    /// Whether the message itself contains data, instead of only requesting data.
    pub(crate) fn has_data(self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendImmediate { .. }
                | Self::SendInvalidate { .. }
                | Self::Write { .. }
                | Self::WriteImmediate { .. }
                | Self::AtomicWrite { .. }
        )
    }

    /// Whether the operation returns the previous value of the memory.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreliable_services_support_fewer_operations() {
        let read = Operation::Read { address: 0, rkey: 0 };
        let write = Operation::Write { address: 0, rkey: 0 };
        assert!(Service::ReliableConnection.sends(read) && Service::XrcSend.sends(read));
        assert!(!Service::UnreliableConnection.sends(read) && Service::UnreliableConnection.sends(write));
        assert!(!Service::UnreliableDatagram.sends(write) && Service::UnreliableDatagram.sends(Operation::Send));
        assert!(!Service::XrcReceive.sends(Operation::Send));
        assert!(Service::Iwarp.sends(read) && !Service::Iwarp.sends(Operation::AtomicWrite { address: 0, rkey: 0 }));
    }
}
