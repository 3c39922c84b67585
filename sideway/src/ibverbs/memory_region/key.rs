//! The two keys of a memory region. They have separate types, because a device reports a protection error if one is
//! used in place of the other.

use std::fmt;

macro_rules! key {
    ($(#[$meta:meta])* $Name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $Name(u32);

        impl $Name {
            /// Creates a key from its value in host byte order.
            #[inline]
            pub const fn from_raw(raw: u32) -> Self {
                Self(raw)
            }

            /// Returns the value in host byte order.
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
    /// An `lkey`, which names memory in the scatter/gather entries of local requests.
    #[doc(alias = "lkey")]
    LocalKey
}

key! {
    /// An `rkey`, which names memory of the peer. The two programs choose the byte order in which they transmit it.
    #[doc(alias = "rkey")]
    RemoteKey
}

impl RemoteKey {
    /// `ibv_inc_rkey(rkey)` — returns the next key. It has the same index, and its tag (the low 8 bits) is incremented,
    /// with 0 following 255. A type 2 window or an invalidated region gets such a key when it is bound or registered
    /// again.
    ///
    /// # References
    ///
    /// [ibv_inc_rkey(3)](https://man7.org/linux/man-pages/man3/ibv_inc_rkey.3.html)
    #[doc(alias = "ibv_inc_rkey")]
    #[inline]
    #[must_use]
    pub const fn inc_rkey(self) -> Self {
        Self(rdma_mummy_sys::ibv_inc_rkey(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inc_rkey_wraps_tag_and_keeps_index() {
        assert_eq!(RemoteKey::from_raw(0x1234_5600).inc_rkey().raw(), 0x1234_5601);
        assert_eq!(RemoteKey::from_raw(0x1234_56ff).inc_rkey().raw(), 0x1234_5600);
        assert_eq!(RemoteKey::from_raw(u32::MAX).inc_rkey().raw(), 0xffff_ff00);
    }
}
