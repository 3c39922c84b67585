//! Encodes a rule for C: `struct ibv_flow_attr` followed by its specifications, without gaps.
//!
//! libibverbs subtracts the header from a specification's `size` and halves the rest to find the mask. It also rejects
//! non-zero padding. So the sizes are exactly those of the C structs, and the memory is zeroed first and then written
//! field by field.

use std::mem::offset_of;

use rdma_mummy_sys::{
    ibv_flow_attr, ibv_flow_attr_type, ibv_flow_esp_filter, ibv_flow_eth_filter, ibv_flow_gre_filter,
    ibv_flow_ipv4_ext_filter, ibv_flow_ipv4_filter, ibv_flow_ipv6_filter, ibv_flow_mpls_filter,
    ibv_flow_spec_action_drop, ibv_flow_spec_action_handle, ibv_flow_spec_action_tag, ibv_flow_spec_counter_action,
    ibv_flow_spec_esp, ibv_flow_spec_eth, ibv_flow_spec_gre, ibv_flow_spec_ipv4, ibv_flow_spec_ipv4_ext,
    ibv_flow_spec_ipv6, ibv_flow_spec_mpls, ibv_flow_spec_tcp_udp, ibv_flow_spec_tunnel, ibv_flow_spec_type as code,
    ibv_flow_tcp_udp_filter, ibv_flow_tunnel_filter,
};

use super::{
    EspFilter, EthernetFilter, FlowRule, FlowSpec, GreFilter, Ipv4ExtFilter, Ipv4Filter, Ipv6Filter, MplsFilter,
    TcpUdpFilter, TunnelFilter, VERB,
};
use crate::error::VerbError;

/// The offset of the attributes in the buffer. It aligns the specifications, some of which contain pointers.
const BEGIN: usize = 4;
const _: () = assert!((BEGIN + size_of::<ibv_flow_attr>()).is_multiple_of(align_of::<u64>()));
const _: () = assert!(BEGIN.is_multiple_of(align_of::<ibv_flow_attr>()));
/// 255 specifications of the largest size must not exceed the 16 bits of `size`.
const _: () = assert!(size_of::<ibv_flow_attr>() + 255 * size_of::<ibv_flow_spec_ipv6>() <= u16::MAX as usize);

/// `struct ibv_flow_attr` with the specifications that follow it.
pub(super) struct FlowAttributes {
    words: Box<[u64]>,
}

impl FlowAttributes {
    pub(super) fn as_mut_ptr(&mut self) -> *mut ibv_flow_attr {
        self.words.as_mut_ptr().wrapping_byte_add(BEGIN).cast()
    }
}

impl FlowRule {
    /// Encodes the rule for C.
    pub(super) fn encode(&self) -> Result<FlowAttributes, VerbError> {
        let count = self.specs.len()
            + self.actions.len()
            + self.counters.len()
            + usize::from(self.drop)
            + usize::from(self.tag.is_some());
        let Ok(num_of_specs) = u8::try_from(count) else {
            return Err(VerbError::invalid(VERB, format!("the rule has {count} specifications; use at most 255")));
        };
        let size = self.size();
        let words = vec![0_u64; (BEGIN + size).div_ceil(size_of::<u64>())].into_boxed_slice();
        let mut attributes = FlowAttributes { words };
        let attr = attributes.as_mut_ptr();
        // SAFETY: the buffer has space for the attributes followed by all specifications (`size`). It is zeroed,
        // aligned (BEGIN), and not shared.
        unsafe {
            (*attr).type_ = ibv_flow_attr_type(self.flow_type.raw());
            // There are at most 255 specifications, so the size fits; see the assertion above.
            (*attr).size = size as u16;
            (*attr).priority = self.priority;
            (*attr).num_of_specs = num_of_specs;
            (*attr).port = self.port;
            (*attr).flags = self.flags.bits();
            self.write_specs(attr.add(1).cast());
        }
        Ok(attributes)
    }

    /// Returns the size of the attributes with all specifications, in bytes.
    fn size(&self) -> usize {
        size_of::<ibv_flow_attr>()
            + self.specs.iter().map(|(spec, _)| spec.size()).sum::<usize>()
            + self.actions.len() * size_of::<ibv_flow_spec_action_handle>()
            + self.counters.len() * size_of::<ibv_flow_spec_counter_action>()
            + usize::from(self.drop) * size_of::<ibv_flow_spec_action_drop>()
            + usize::from(self.tag.is_some()) * size_of::<ibv_flow_spec_action_tag>()
    }

    /// Writes all specifications. The tag must be the last one, because its size would misalign a specification that
    /// follows it.
    ///
    /// # Safety
    ///
    /// `place` is aligned for a pointer, is zeroed, and has space for all specifications that [`size`](Self::size)
    /// counts.
    unsafe fn write_specs(&self, place: *mut u8) {
        let mut next = place;
        // SAFETY: by the contract of this function. The specifications are written one after the other within the given
        // space. Each is aligned, because the sizes of all but the last are multiples of ALIGNMENT (see the assertions
        // below).
        unsafe {
            for (spec, inner) in &self.specs {
                spec.write(next, *inner);
                next = next.add(spec.size());
            }
            for action in &self.actions {
                let spec = begin::<ibv_flow_spec_action_handle>(next, code::IBV_FLOW_SPEC_ACTION_HANDLE, false);
                (*spec).action = action.raw();
                next = spec.add(1).cast();
            }
            for counters in &self.counters {
                let spec = begin::<ibv_flow_spec_counter_action>(next, code::IBV_FLOW_SPEC_ACTION_COUNT, false);
                (*spec).counters = counters.raw();
                next = spec.add(1).cast();
            }
            if self.drop {
                let spec = begin::<ibv_flow_spec_action_drop>(next, code::IBV_FLOW_SPEC_ACTION_DROP, false);
                next = spec.add(1).cast();
            }
            if let Some(tag) = self.tag {
                let spec = begin::<ibv_flow_spec_action_tag>(next, code::IBV_FLOW_SPEC_ACTION_TAG, false);
                (*spec).tag_id = tag;
            }
        }
    }
}

/// A C struct that starts with the type and then the size, like all specifications.
trait Spec {}

/// Writes the header of a specification.
///
/// # Safety
///
/// `place` is aligned for `S` and has space for one `S`.
unsafe fn begin<S: Spec>(place: *mut u8, spec_type: code, inner: bool) -> *mut S {
    let inner = if inner { code::IBV_FLOW_SPEC_INNER.0 } else { 0 };
    // SAFETY: by the contract of this function. A specification begins with its type and its size (see the assertions
    // below), and none is larger than 65,535 bytes.
    unsafe {
        place.cast::<u32>().write(spec_type.0 | inner);
        place.add(SIZE_AT).cast::<u16>().write(size_of::<S>() as u16);
    }
    place.cast()
}

const SIZE_AT: usize = offset_of!(ibv_flow_spec_action_drop, size);

macro_rules! heads {
    ($($Spec:ty),+ $(,)?) => {$(
        impl Spec for $Spec {}
        const _: () = assert!(offset_of!($Spec, type_) == 0 && offset_of!($Spec, size) == SIZE_AT);
    )+};
}

heads!(
    ibv_flow_spec_eth,
    ibv_flow_spec_ipv4,
    ibv_flow_spec_ipv4_ext,
    ibv_flow_spec_ipv6,
    ibv_flow_spec_tcp_udp,
    ibv_flow_spec_tunnel,
    ibv_flow_spec_gre,
    ibv_flow_spec_mpls,
    ibv_flow_spec_esp,
    ibv_flow_spec_action_handle,
    ibv_flow_spec_counter_action,
    ibv_flow_spec_action_drop,
    ibv_flow_spec_action_tag,
);

/// The alignment of the specifications: that of a pointer.
const ALIGNMENT: usize = align_of::<usize>();

const _: () = assert!(size_of::<ibv_flow_spec_action_handle>().is_multiple_of(ALIGNMENT));
const _: () = assert!(size_of::<ibv_flow_spec_counter_action>().is_multiple_of(ALIGNMENT));
const _: () = assert!(size_of::<ibv_flow_spec_action_drop>().is_multiple_of(ALIGNMENT));

macro_rules! specs {
    ($( $Variant:ident: $Spec:ident, $KIND:ident; )+) => {
        impl FlowSpec {
            /// Returns the size of the C struct in bytes.
            fn size(&self) -> usize {
                match self {
                    $( Self::$Variant { .. } => size_of::<$Spec>(), )+
                }
            }

            /// Writes the C struct.
            ///
            /// # Safety
            ///
            /// `place` is aligned for a pointer, is zeroed, and has space for [`size`](Self::size) bytes.
            unsafe fn write(&self, place: *mut u8, inner: bool) {
                match self {
                    $( Self::$Variant { value, mask } => {
                        // SAFETY: the caller upholds the contract of this function.
                        unsafe {
                            let spec = begin::<$Spec>(place, code::$KIND, inner);
                            value.write(&raw mut (*spec).val);
                            mask.write(&raw mut (*spec).mask);
                        }
                    } )+
                }
            }
        }

        $( const _: () = assert!(size_of::<$Spec>().is_multiple_of(ALIGNMENT) && align_of::<$Spec>() <= ALIGNMENT); )+
    };
}

specs! {
    Ethernet: ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH;
    Ipv4: ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4;
    Ipv4Ext: ibv_flow_spec_ipv4_ext, IBV_FLOW_SPEC_IPV4_EXT;
    Ipv6: ibv_flow_spec_ipv6, IBV_FLOW_SPEC_IPV6;
    Tcp: ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_TCP;
    Udp: ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_UDP;
    VxlanTunnel: ibv_flow_spec_tunnel, IBV_FLOW_SPEC_VXLAN_TUNNEL;
    Gre: ibv_flow_spec_gre, IBV_FLOW_SPEC_GRE;
    Mpls: ibv_flow_spec_mpls, IBV_FLOW_SPEC_MPLS;
    Esp: ibv_flow_spec_esp, IBV_FLOW_SPEC_ESP;
}

macro_rules! filters {
    ($( $Filter:ident => $C:ident { $( $field:ident: |$filter:ident| $value:expr; )+ } )+) => {$(
        impl $Filter {
            /// Writes the C struct in network byte order. Does not change its padding.
            ///
            /// # Safety
            ///
            /// `to` can be written.
            pub(super) unsafe fn write(&self, to: *mut $C) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe {
                    $( (*to).$field = { let $filter = self; $value }; )+
                }
            }
        }
    )+};
}

filters! {
    EthernetFilter => ibv_flow_eth_filter {
        dst_mac: |filter| filter.dst_mac;
        src_mac: |filter| filter.src_mac;
        ether_type: |filter| filter.ether_type.to_be();
        vlan_tag: |filter| filter.vlan_tag.to_be();
    }
    Ipv4Filter => ibv_flow_ipv4_filter {
        src_ip: |filter| filter.src_ip.to_bits().to_be();
        dst_ip: |filter| filter.dst_ip.to_bits().to_be();
    }
    Ipv4ExtFilter => ibv_flow_ipv4_ext_filter {
        src_ip: |filter| filter.src_ip.to_bits().to_be();
        dst_ip: |filter| filter.dst_ip.to_bits().to_be();
        proto: |filter| filter.protocol;
        tos: |filter| filter.tos;
        ttl: |filter| filter.ttl;
        flags: |filter| filter.flags;
    }
    Ipv6Filter => ibv_flow_ipv6_filter {
        src_ip: |filter| filter.src_ip.octets();
        dst_ip: |filter| filter.dst_ip.octets();
        flow_label: |filter| filter.flow_label.to_be();
        next_hdr: |filter| filter.next_header;
        traffic_class: |filter| filter.traffic_class;
        hop_limit: |filter| filter.hop_limit;
    }
    TcpUdpFilter => ibv_flow_tcp_udp_filter {
        dst_port: |filter| filter.dst_port.to_be();
        src_port: |filter| filter.src_port.to_be();
    }
    TunnelFilter => ibv_flow_tunnel_filter {
        tunnel_id: |filter| filter.tunnel_id.to_be();
    }
    GreFilter => ibv_flow_gre_filter {
        c_ks_res0_ver: |filter| filter.flags_and_version.to_be();
        protocol: |filter| filter.protocol.to_be();
        key: |filter| filter.key.to_be();
    }
    MplsFilter => ibv_flow_mpls_filter {
        label: |filter| filter.entry().to_be();
    }
    EspFilter => ibv_flow_esp_filter {
        spi: |filter| filter.spi.to_be();
        seq: |filter| filter.sequence.to_be();
    }
}

impl MplsFilter {
    /// Returns the 32 bits of a label stack entry (RFC 3032).
    fn entry(&self) -> u32 {
        (self.label & 0xf_ffff) << 12
            | u32::from(self.traffic_class & 0b111) << 9
            | u32::from(self.bottom_of_stack) << 8
            | u32::from(self.ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use rdma_mummy_sys::ibv_flow_spec;

    use super::super::FlowType;
    use super::*;

    /// Returns every specification that names no object.
    fn all() -> Vec<FlowSpec> {
        macro_rules! any {
            ($($Variant:ident: $Filter:ident),+ $(,)?) => {
                vec![$( FlowSpec::$Variant { value: $Filter::default(), mask: $Filter::default() } ),+]
            };
        }
        any!(
            Ethernet: EthernetFilter,
            Ipv4: Ipv4Filter,
            Ipv4Ext: Ipv4ExtFilter,
            Ipv6: Ipv6Filter,
            Tcp: TcpUdpFilter,
            Udp: TcpUdpFilter,
            VxlanTunnel: TunnelFilter,
            Gre: GreFilter,
            Mpls: MplsFilter,
            Esp: EspFilter,
        )
    }

    #[test]
    fn encoded_rule_is_complete_and_aligned() {
        let mut rule = FlowRule::new(FlowType::Normal, 1);
        for spec in all() {
            assert!(spec.size() <= size_of::<ibv_flow_spec>());
            rule.setup_match(spec).setup_inner_match(spec);
        }
        rule.setup_drop().setup_tag(7);
        let mut attributes = rule.encode().unwrap();
        let attr = attributes.as_mut_ptr();
        // SAFETY: the attributes were just encoded, and have as many bytes as their `size` states.
        let (count, bytes) =
            unsafe { ((*attr).num_of_specs, slice::from_raw_parts(attr.cast::<u8>(), (*attr).size.into())) };
        assert_eq!(usize::from(count), 2 * all().len() + 2);
        let mut at = size_of::<ibv_flow_attr>();
        for index in 0..count {
            assert!(bytes[at..].as_ptr().cast::<u64>().is_aligned(), "specification {index}");
            at += usize::from(u16::from_ne_bytes([bytes[at + SIZE_AT], bytes[at + SIZE_AT + 1]]));
        }
        assert_eq!(at, bytes.len());
        // In a specification that matches every packet, only the type and the size are non-zero.
        let ones = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte != 0).count();
        assert!(ones(bytes) < 4 * (usize::from(count) + 3), "{bytes:?}");
    }
}
