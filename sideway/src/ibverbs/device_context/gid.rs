//! `union ibv_gid`: the address of a port.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use rdma_mummy_sys::ibv_gid;

/// `union ibv_gid` — the 128-bit address of a port, formatted as an IPv6 address.
///
/// With InfiniBand it is a subnet prefix and a GUID. With RoCE v2 it is the interface's IPv6 address, or its IPv4
/// address mapped to IPv6 (`::ffff:192.0.2.1`).
///
/// `Display` prints all eight groups (`fe80:0000:0000:0000:0002:c903:0033:1045`), so that columns align. Convert the
/// GID to [`Ipv6Addr`] to print the short form. Parsing accepts both forms.
///
/// ```
/// use sideway::ibverbs::address::Gid;
///
/// let gid: Gid = "::ffff:192.0.2.1".parse()?;
/// assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:c000:0201");
/// assert_eq!(gid.ipv4(), Some([192, 0, 2, 1].into()));
/// # Ok::<(), sideway::ibverbs::address::ParseGidError>(())
/// ```
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gid {
    /// The bytes in network order: the first byte is the most significant one.
    pub raw: [u8; 16],
}

impl Gid {
    /// Whether all bytes are zero, as in an unused table entry.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.raw == [0; 16]
    }

    /// Whether the GID is a unicast link-local address, `fe80::/10`, valid only on its own link.
    #[inline]
    pub fn is_unicast_link_local(&self) -> bool {
        let [first, second, ..] = self.raw;
        first == 0xfe && second & 0xc0 == 0x80
    }

    /// Whether the GID is that of a multicast group: `ff00::/8`, or a mapped IPv4 group, `::ffff:224.0.0.0/100`.
    #[inline]
    pub fn is_multicast(&self) -> bool {
        let [first, ..] = self.raw;
        first == 0xff || self.ipv4().is_some_and(|address| address.is_multicast())
    }

    /// Whether the GID holds an IPv4 address, `::ffff:0:0/96`.
    #[inline]
    pub fn is_ipv4_mapped(&self) -> bool {
        self.ipv4().is_some()
    }

    /// Returns the IPv4 address, if the GID [holds one](Self::is_ipv4_mapped).
    #[inline]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(*self).to_ipv4_mapped()
    }

    /// Returns the upper half, in host order.
    #[inline]
    pub fn subnet_prefix(&self) -> u64 {
        (u128::from_be_bytes(self.raw) >> 64) as u64
    }

    /// Returns the lower half, in host order. With InfiniBand it is the port's GUID.
    #[inline]
    pub fn interface_id(&self) -> u64 {
        u128::from_be_bytes(self.raw) as u64
    }
}

impl From<ibv_gid> for Gid {
    fn from(gid: ibv_gid) -> Self {
        // SAFETY: both views of the union are sixteen bytes of plain integers, for which all bits are valid.
        Self { raw: unsafe { gid.raw } }
    }
}

impl From<Gid> for ibv_gid {
    fn from(gid: Gid) -> Self {
        Self { raw: gid.raw }
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self { raw: address.octets() }
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        gid.raw.into()
    }
}

/// Returns the mapped form, `::ffff:a.b.c.d`.
impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = Ipv6Addr::from(*self).segments();
        f.pad(&format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}:{e:04x}:{g:04x}:{h:04x}:{i:04x}"))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", Ipv6Addr::from(*self))
    }
}

/// The error of parsing a text that is not a GID.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a GID: write an IPv6 address, such as fe80::1 or ::ffff:192.0.2.1")]
pub struct ParseGidError {
    text: String,
}

crate::error::debug_is_text!(ParseGidError);

impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(Self::from).map_err(|_| ParseGidError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse().unwrap()
    }

    #[test]
    fn gid_kinds_are_recognized() {
        assert!(Gid::default().is_zero());
        assert!(!gid("::1").is_zero());
        assert!(gid("fe80::1").is_unicast_link_local());
        assert!(gid("febf::1").is_unicast_link_local());
        assert!(!gid("fec0::1").is_unicast_link_local());
        assert!(!gid("ff02::1").is_unicast_link_local());
        assert!(gid("ff02::1").is_multicast());
        assert!(gid("::ffff:10.0.0.1").is_ipv4_mapped());
        // IPv4-compatible addresses and the loopback address count as IPv6 addresses.
        assert_eq!(gid("::10.0.0.1").ipv4(), None);
        assert_eq!(gid("::1").ipv4(), None);
        assert_eq!(Gid::from(Ipv4Addr::new(10, 0, 0, 1)), gid("::ffff:10.0.0.1"));
    }

    #[test]
    #[cfg(feature = "serde")]
    fn serde_encodes_the_bytes() {
        let gid = gid("::ffff:10.0.0.1");
        let text = serde_json::to_string(&gid).unwrap();
        assert_eq!(text, r#"{"raw":[0,0,0,0,0,0,0,0,0,0,255,255,10,0,0,1]}"#);
        assert_eq!(serde_json::from_str::<Gid>(&text).unwrap(), gid);
    }

    #[test]
    fn halves_are_in_host_order() {
        let gid = gid("fe80::2:c903:33:1045");
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x0002_c903_0033_1045);
    }

    #[test]
    fn display_prints_all_groups_and_honours_width() {
        let gid = gid("fe80::1");
        assert_eq!(gid.to_string(), "fe80:0000:0000:0000:0000:0000:0000:0001");
        assert_eq!(format!("{gid:<41}|"), "fe80:0000:0000:0000:0000:0000:0000:0001  |");
        assert_eq!(format!("{gid:?}"), "Gid(fe80::1)");
    }

    #[test]
    fn invalid_text_is_rejected_by_name() {
        let error = "mlx5_0".parse::<Gid>().unwrap_err();
        assert!(error.to_string().starts_with("`mlx5_0` is not a GID"), "{error}");
    }

    proptest! {
        #[test]
        fn text_and_c_struct_round_trip(raw: [u8; 16]) {
            let gid = Gid { raw };
            prop_assert_eq!(gid.to_string().parse::<Gid>(), Ok(gid));
            prop_assert_eq!(Ipv6Addr::from(gid).to_string().parse::<Gid>(), Ok(gid));
            prop_assert_eq!(Gid::from(ibv_gid::from(gid)), gid);
            prop_assert_eq!(gid.ipv4().map(Gid::from), gid.is_ipv4_mapped().then_some(gid));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = text.parse::<Gid>();
        }
    }
}
