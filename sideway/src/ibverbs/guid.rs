//! GUIDs: numbers that identify devices.

use std::fmt;
use std::str::FromStr;

/// A globally unique 64-bit number of a device (EUI-64), such as `0002:c903:0033:1045`.
///
/// C stores the number in network byte order, whereas this type stores it in host order.
///
/// ```
/// use sideway::ibverbs::device_context::Guid;
///
/// let guid: Guid = "0002:c903:0033:1045".parse()?;
/// assert_eq!(guid.as_u64(), 0x0002_c903_0033_1045);
/// assert_eq!(guid.to_string(), "0002:c903:0033:1045");
/// # Ok::<(), sideway::ibverbs::device_context::ParseGuidError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Guid(u64);

impl Guid {
    /// Creates a GUID from a number in host order.
    pub const fn from_u64(guid: u64) -> Self {
        Self(guid)
    }

    /// Creates a GUID from a number in network order, as in C.
    pub const fn from_be(guid: u64) -> Self {
        Self(u64::from_be(guid))
    }

    /// Returns the number in host order.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the bytes in network order.
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Whether the GUID is zero, which means unknown.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) as u16);
        f.pad(&format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// The error of parsing a text that is not a GUID.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a GUID: write four groups of four hexadecimal digits, such as 0002:c903:0033:1045")]
pub struct ParseGuidError {
    text: String,
}

crate::error::debug_is_text!(ParseGuidError);

impl FromStr for Guid {
    type Err = ParseGuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut groups = text.split(':').map(|group| {
            // This check is needed because `from_str_radix` alone would accept a sign.
            let digits = group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
            if digits { u64::from_str_radix(group, 16).ok() } else { None }
        });
        let mut group = || groups.next().flatten();
        let guid = match (group(), group(), group(), group()) {
            (Some(a), Some(b), Some(c), Some(d)) => Some(Self(a << 48 | b << 32 | c << 16 | d)),
            _ => None,
        };
        guid.filter(|_| groups.next().is_none()).ok_or_else(|| ParseGuidError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn from_be_converts_network_order() {
        let guid = Guid::from_be(u64::from_ne_bytes([0x00, 0x02, 0xc9, 0x03, 0x00, 0x33, 0x10, 0x45]));
        assert_eq!(guid.as_u64(), 0x0002_c903_0033_1045);
        assert_eq!(guid.to_string(), "0002:c903:0033:1045");
        assert_eq!(guid.to_be_bytes(), [0x00, 0x02, 0xc9, 0x03, 0x00, 0x33, 0x10, 0x45]);
        assert_eq!(format!("{guid:?}"), "Guid(0002:c903:0033:1045)");
        assert!(Guid::default().is_zero());
    }

    #[test]
    #[cfg(feature = "serde")]
    fn serde_encodes_the_number() {
        let guid = Guid::from_u64(0x0002_c903_0033_1045);
        let text = serde_json::to_string(&guid).unwrap();
        assert_eq!((&*text, serde_json::from_str::<Guid>(&text).unwrap()), ("783964678852677", guid));
    }

    #[test]
    fn invalid_text_is_rejected() {
        for text in
            ["", "0:0:0:0", "0002:c903:0033", "0002:c903:0033:1045:0000", "+002:c903:0033:1045", "0002:c903:0033:104g"]
        {
            assert!(text.parse::<Guid>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(number: u64) {
            let guid = Guid::from_u64(number);
            prop_assert_eq!(guid.to_string().parse(), Ok(guid));
            prop_assert_eq!(Guid::from_be(number.to_be()), guid);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = text.parse::<Guid>();
        }
    }
}
