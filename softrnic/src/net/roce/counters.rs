//! Counters of connections and devices, as NICs have them.

use std::fmt;
use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What has happened on the connections of a RoCEv2 device since it was opened, or on one connection since its queue
        /// pair became ready to receive. `Display` writes `name=value` for each counter. The counters of a device
        /// count only what has arrived at this process: if several processes share the port, others may have received packets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) const fn new() -> Self {
                Self { $($name: 0),* }
            }

            /// Returns the names and the values, in the order of the fields.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Request packets that were sent again.
    retransmits,
    /// How often no acknowledgement came in time, so that packets were sent again.
    ack_timeouts,
    /// NAKs of peers that missed packets.
    sequence_naks,
    /// Request packets that arrived although an earlier one was missing.
    out_of_sequence,
    /// Request packets that arrived again.
    duplicate_requests,
    /// RNR NAKs that were sent: a message found no receive.
    rnr_nak_sent,
    /// RNR NAKs that arrived.
    rnr_nak_received,
    /// Packets that a router has marked because of congestion (ECN).
    ecn_marked,
    /// Congestion notifications that were sent.
    cnp_sent,
    /// Congestion notifications that arrived.
    cnp_handled,
    /// Packets with a wrong ICRC; only of a device.
    icrc_errors,
    /// Packets that are malformed, have another P_Key, or belong to no connection and no process; only of a device.
    discarded,
    /// Datagrams that the kernel has dropped because a receive buffer was full; only of a device.
    buffer_overflows,
}

impl fmt::Display for Counters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.named().into_iter().enumerate() {
            write!(formatter, "{}{name}={value}", if place == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
