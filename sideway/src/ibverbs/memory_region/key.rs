//! The two keys of a memory region, as types of their own: one in place of the other is a mistake that a device answers
//! with a protection error.

use std::fmt;

macro_rules! key {
    ($(#[$meta:meta])* $Name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $Name(u32);

        impl $Name {
            /// The key with this value, in host byte order.
            #[inline]
            pub const fn from_raw(raw: u32) -> Self {
                Self(raw)
            }

            /// The value, in host byte order.
            #[inline]
            pub const fn raw(self) -> u32 {
                self.0
            }
        }

        impl From<u32> for $Name {
            #[inline]
            fn from(raw: u32) -> Self {
                Self(raw)
            }
        }

        impl From<$Name> for u32 {
            #[inline]
            fn from(key: $Name) -> u32 {
                key.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }
    };
}

key! {
    /// An `lkey`: names memory in the scatter-gather entries of this side's requests.
    #[doc(alias = "lkey")]
    LocalKey
}

key! {
    /// An `rkey`: names memory of the other side; it travels to the peer, whose byte order the two programs settle.
    #[doc(alias = "rkey")]
    RemoteKey
}
