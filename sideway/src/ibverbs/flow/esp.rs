//! `struct ibv_flow_action_esp_attr`: the attributes of an IPsec action.

use std::fmt;

use rdma_mummy_sys as raw;
use rdma_mummy_sys::{
    ib_uverbs_flow_action_esp, ib_uverbs_flow_action_esp_encap, ib_uverbs_flow_action_esp_keymat,
    ib_uverbs_flow_action_esp_keymat_aes_gcm, ib_uverbs_flow_action_esp_replay, ib_uverbs_flow_action_esp_replay_bmp,
    ibv_flow_action_esp_attr, ibv_flow_action_esp_mask, ibv_flow_eth_filter, ibv_flow_ipv4_ext_filter,
    ibv_flow_ipv4_filter, ibv_flow_ipv6_filter, ibv_flow_spec_type, ibv_flow_tcp_udp_filter,
};

use super::{EthernetFilter, Ipv4ExtFilter, Ipv4Filter, Ipv6Filter, TcpUdpFilter};
use crate::ffi::open_enum;

bitflags::bitflags! {
    /// `enum ib_uverbs_flow_action_esp_flags` — how packets are protected. Without flags, the action decrypts, in
    /// inline crypto mode and in tunnel mode.
    #[doc(alias = "ib_uverbs_flow_action_esp_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EspFlags: u32 {
        /// The device adds and removes the ESP header and trailer.
        const FullOffload = raw::ib_uverbs_flow_action_esp_flags::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD.0;
        /// The action uses transport mode instead of tunnel mode.
        const Transport = raw::ib_uverbs_flow_action_esp_flags::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT.0;
        /// The action encrypts instead of decrypting.
        const Encrypt = raw::ib_uverbs_flow_action_esp_flags::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT.0;
        /// The lower end of the replay window is in the upper half of the range of sequence numbers.
        const EsnNewWindow = raw::ib_uverbs_flow_action_esp_flags::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW.0;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

open_enum! {
    /// `enum ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo` — how a packet's initialization vector is chosen.
    #[doc(alias = "ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo")]
    pub enum IvAlgorithm {
        /// Each packet uses the initialization vector of the previous packet, plus 1.
        Sequential = raw::ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo::IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ.0,
    }
}

/// The values of an IPsec action. Creating an action requires the attributes and the key. When an action is modified,
/// `None` leaves a value unchanged.
#[doc(alias = "ibv_flow_action_esp_attr")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EspAction {
    /// Attributes of the security association.
    pub attributes: Option<EspAttributes>,
    /// The cipher's key.
    pub key: Option<AesGcmKey>,
    /// The size of the replay window, as a number of sequence numbers. It is used only in full offload mode.
    pub replay_window: Option<u32>,
    /// The upper half of the extended sequence number.
    pub extended_sequence: Option<u32>,
    /// The headers to add or remove, from the outermost to the innermost. They are used only in full offload mode.
    /// Tunnel mode requires at least one header. If this list is empty, this crate passes no list to C.
    pub encapsulation: Vec<EspHeader>,
}

/// `struct ib_uverbs_flow_action_esp_encap` — one header around a packet.
#[doc(alias = "ib_uverbs_flow_action_esp_encap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EspHeader {
    /// Ethernet.
    Ethernet(EthernetFilter),
    /// IPv4 addresses.
    Ipv4(Ipv4Filter),
    /// IPv4.
    Ipv4Ext(Ipv4ExtFilter),
    /// IPv6.
    Ipv6(Ipv6Filter),
    /// UDP.
    Udp(TcpUdpFilter),
}

/// `struct ib_uverbs_flow_action_esp` — attributes of a security association. Without full offload mode, only the flags
/// are used.
#[doc(alias = "ib_uverbs_flow_action_esp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EspAttributes {
    /// The security parameter index.
    pub spi: u32,
    /// The lower half of the first packet's sequence number.
    pub sequence: u32,
    /// The number of bytes of padding against traffic analysis (RFC 4303).
    pub traffic_flow_padding: u32,
    /// How packets are protected.
    pub flags: EspFlags,
    /// The number of packets after which all further packets are dropped (RFC 4301).
    pub hard_limit_packets: u64,
}

/// `struct ib_uverbs_flow_action_esp_keymat_aes_gcm` — AES in Galois/counter mode (RFC 4106). `Debug` omits the
/// secrets.
#[doc(alias = "ib_uverbs_flow_action_esp_keymat_aes_gcm")]
#[derive(Clone, PartialEq, Eq)]
pub struct AesGcmKey {
    /// The first initialization vector, which must not be reused with this key. It is used only in full offload mode.
    pub iv: u64,
    /// How later initialization vectors are chosen.
    pub iv_algorithm: IvAlgorithm,
    /// The salt.
    pub salt: u32,
    /// The length of the integrity check value in bytes: 8, 12 or 16.
    pub icv_length: u32,
    key: [u32; 8],
    key_length: u32,
}

impl AesGcmKey {
    /// Creates a key of 16, 24 or 32 bytes, with a salt. The initialization vectors are sequential and start at 0, and
    /// the integrity check value has 16 bytes. The fields can be changed to use other values.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has another length.
    pub fn new(key: &[u8], salt: u32) -> Result<Self, ParseKeyError> {
        if !matches!(key.len(), 16 | 24 | 32) {
            return Err(ParseKeyError { length: key.len() });
        }
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
            // Each word stores its four bytes in the order of the key.
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        let iv_algorithm = IvAlgorithm::Sequential;
        Ok(Self { iv: 0, iv_algorithm, salt, icv_length: 16, key: words, key_length: key.len() as u32 })
    }
}

impl fmt::Debug for AesGcmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AesGcmKey")
            .field("iv_algorithm", &self.iv_algorithm)
            .field("icv_length", &self.icv_length)
            .field("key_length", &self.key_length)
            .finish_non_exhaustive()
    }
}

/// The error of a key whose length is not valid for AES.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("an AES key cannot have {length} bytes; use 16, 24 or 32")]
pub struct ParseKeyError {
    length: usize,
}

crate::error::debug_is_text!(ParseKeyError);

/// The structs that C reads, in one allocation.
pub(super) struct EspStructs {
    attributes: Option<ib_uverbs_flow_action_esp>,
    key: Option<ib_uverbs_flow_action_esp_keymat_aes_gcm>,
    replay: Option<ib_uverbs_flow_action_esp_replay_bmp>,
    sequence: Option<u32>,
    /// The filters of the headers. Each header points to one of them.
    filters: Vec<FilterPlace>,
    headers: Vec<ib_uverbs_flow_action_esp_encap>,
}

/// Storage that is large enough for any filter.
type FilterPlace = [u64; 5];

impl EspStructs {
    /// Returns the struct that points to the other structs. It is valid while these are not moved.
    pub(super) fn attr(&mut self) -> ibv_flow_action_esp_attr {
        use std::ptr::{from_mut, null_mut};
        let no_replay = ib_uverbs_flow_action_esp_replay::IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE;
        let bitmap = ib_uverbs_flow_action_esp_replay::IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP;
        // `chain` is called first, because it borrows `self`, which would invalidate pointers to the other fields.
        let esp_encap = self.chain();
        let esn = ibv_flow_action_esp_mask::IBV_FLOW_ACTION_ESP_MASK_ESN.0;
        ibv_flow_action_esp_attr {
            esp_attr: self.attributes.as_mut().map_or(null_mut(), from_mut),
            keymat_proto: ib_uverbs_flow_action_esp_keymat::IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM,
            keymat_len: self.key.map_or(0, |_| size_of::<ib_uverbs_flow_action_esp_keymat_aes_gcm>() as u16),
            keymat_ptr: self.key.as_mut().map_or(null_mut(), |key| from_mut(key).cast()),
            replay_proto: self.replay.map_or(no_replay, |_| bitmap),
            replay_len: self.replay.map_or(0, |_| size_of::<ib_uverbs_flow_action_esp_replay_bmp>() as u16),
            replay_ptr: self.replay.as_mut().map_or(null_mut(), |replay| from_mut(replay).cast()),
            esp_encap,
            comp_mask: self.sequence.map_or(0, |_| esn),
            esn: self.sequence.unwrap_or(0),
        }
    }

    /// Links each header to its filter and to the next header.
    fn chain(&mut self) -> *mut ib_uverbs_flow_action_esp_encap {
        let filters = self.filters.as_mut_ptr();
        let headers = self.headers.as_mut_ptr();
        let count = self.headers.len();
        for index in 0..count {
            let next = if index + 1 < count { headers.wrapping_add(index + 1) } else { std::ptr::null_mut() };
            // SAFETY: both lists have an entry at the index, and are not shared.
            unsafe {
                (*headers.add(index)).__bindgen_anon_1.val_ptr = filters.add(index).cast();
                (*headers.add(index)).__bindgen_anon_2.next_ptr = next;
            }
        }
        if count == 0 { std::ptr::null_mut() } else { headers }
    }
}

macro_rules! headers {
    ($( $Variant:ident: $C:ident, $CODE:ident; )+) => {
        impl EspHeader {
            /// Encodes the header and its filter. The two are not linked yet.
            fn encode(&self) -> (FilterPlace, ib_uverbs_flow_action_esp_encap) {
                let mut place: FilterPlace = [0; 5];
                // SAFETY: all zeros are a valid value, because the struct has only integers and pointers.
                let mut header: ib_uverbs_flow_action_esp_encap = unsafe { std::mem::zeroed() };
                match self {
                    $( Self::$Variant(filter) => {
                        // SAFETY: the storage is large enough and sufficiently aligned for the filter (see the
                        // assertions below).
                        unsafe { filter.write((&raw mut place).cast()) };
                        header.len = size_of::<$C>() as u16;
                        header.type_ = ibv_flow_spec_type::$CODE.0 as u16;
                    } )+
                }
                (place, header)
            }
        }

        $( const _: () = assert!(
            size_of::<$C>() <= size_of::<FilterPlace>() && align_of::<$C>() <= align_of::<FilterPlace>()
        ); )+
    };
}

headers! {
    Ethernet: ibv_flow_eth_filter, IBV_FLOW_SPEC_ETH;
    Ipv4: ibv_flow_ipv4_filter, IBV_FLOW_SPEC_IPV4;
    Ipv4Ext: ibv_flow_ipv4_ext_filter, IBV_FLOW_SPEC_IPV4_EXT;
    Ipv6: ibv_flow_ipv6_filter, IBV_FLOW_SPEC_IPV6;
    Udp: ibv_flow_tcp_udp_filter, IBV_FLOW_SPEC_UDP;
}

impl From<&EspAction> for EspStructs {
    fn from(action: &EspAction) -> Self {
        let attributes = action.attributes.map(|attributes| ib_uverbs_flow_action_esp {
            spi: attributes.spi,
            seq: attributes.sequence,
            tfc_pad: attributes.traffic_flow_padding,
            flags: attributes.flags.bits(),
            hard_limit_pkts: attributes.hard_limit_packets,
        });
        let key = action.key.as_ref().map(|key| ib_uverbs_flow_action_esp_keymat_aes_gcm {
            iv: key.iv,
            iv_algo: key.iv_algorithm.raw(),
            salt: key.salt,
            icv_len: key.icv_length,
            key_len: key.key_length,
            aes_key: key.key,
        });
        let replay = action.replay_window.map(|size| ib_uverbs_flow_action_esp_replay_bmp { size });
        let (filters, headers) = action.encapsulation.iter().map(EspHeader::encode).unzip();
        Self { attributes, key, replay, sequence: action.extended_sequence, filters, headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_valid_or_null() {
        let mut key = AesGcmKey::new(&[7; 24], 8).unwrap();
        key.iv = 9;
        let attributes = Some(EspAttributes { spi: 10, ..Default::default() });
        let action = EspAction {
            attributes,
            key: Some(key),
            replay_window: Some(11),
            extended_sequence: Some(12),
            ..Default::default()
        };
        let mut structs = EspStructs::from(&action);
        let attr = structs.attr();
        // SAFETY: the structs live until the end of the function.
        let (esp, key, replay) = unsafe {
            let key = attr.keymat_ptr.cast::<ib_uverbs_flow_action_esp_keymat_aes_gcm>();
            let replay = attr.replay_ptr.cast::<ib_uverbs_flow_action_esp_replay_bmp>();
            (*attr.esp_attr, *key, *replay)
        };
        assert_eq!((esp.spi, key.iv, key.salt, key.key_len, replay.size), (10, 9, 8, 24, 11));
        assert_eq!((attr.comp_mask, attr.esn), (1, 12));

        assert!(attr.esp_encap.is_null());

        let mut nothing = EspStructs::from(&EspAction::default());
        let attr = nothing.attr();
        assert!(attr.esp_attr.is_null() && attr.keymat_ptr.is_null() && attr.replay_ptr.is_null());
        assert_eq!((attr.keymat_len, attr.replay_len, attr.comp_mask), (0, 0, 0));
    }
    #[test]
    fn headers_are_linked_outermost_first() {
        let ip = Ipv6Filter { next_header: 17, hop_limit: 3, ..Default::default() };
        let udp = TcpUdpFilter { dst_port: 4500, src_port: 1 };
        let encapsulation = vec![EspHeader::Ipv6(ip), EspHeader::Udp(udp)];
        let mut structs = EspStructs::from(&EspAction { encapsulation, ..Default::default() });
        let attr = structs.attr();
        // SAFETY: the structs live until the end of the function, and the types of the pointers match.
        unsafe {
            let first = *attr.esp_encap;
            assert_eq!((first.len, first.type_), (40, 0x31));
            let filter = *first.__bindgen_anon_1.val_ptr.cast::<ibv_flow_ipv6_filter>();
            assert_eq!((filter.next_hdr, filter.hop_limit), (17, 3));
            let second = *first.__bindgen_anon_2.next_ptr;
            assert_eq!((second.len, second.type_), (4, 0x41));
            let filter = *second.__bindgen_anon_1.val_ptr.cast::<ibv_flow_tcp_udp_filter>();
            assert_eq!((filter.dst_port, filter.src_port), (4500_u16.to_be(), 1_u16.to_be()));
            assert!(second.__bindgen_anon_2.next_ptr.is_null());
        }
    }
}
