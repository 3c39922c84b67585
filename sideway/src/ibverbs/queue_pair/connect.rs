//! Connecting queue pairs: the transitions to INIT, RTR and RTS in one call.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use super::transition::standard_transition;
use super::{
    ModifyQueuePairError, QueuePairAttribute, QueuePairCore, QueuePairEndpoint, QueuePairState, QueuePairType,
};
use crate::error::{Errno, VerbError};
use crate::ibverbs::AccessFlags;
use crate::ibverbs::address::AddressHandleAttribute;
use crate::ibverbs::device_context::{AtomicCapability, LinkLayer, Mtu, PortAttr};

/// The largest number of 24 bits. QP numbers and packet sequence numbers have 24 bits.
const LARGEST_24_BIT: u32 = 0xff_ffff;

/// The LIDs of ports (InfiniBand Architecture Specification, volume 1, section 4.1.3).
const UNICAST_LIDS: Range<u16> = 1..0xc000;

/// Options of one end of a connection: its port and GID, its first packet sequence number, and its send and retry
/// parameters.
///
/// Use the same options in the calls of [`local_endpoint`](super::QueuePair::local_endpoint) and
/// [`connect_rc`](super::QueuePair::connect_rc) for one queue pair. Several queue pairs may share the options.
///
/// ```
/// use sideway::ibverbs::queue_pair::RcOptions;
///
/// let mut options = RcOptions::new();
/// options.setup_port(2).setup_gid_index(3).setup_timeout(18);
/// ```
#[derive(Clone, Debug)]
pub struct RcOptions {
    port: u8,
    gid_index: Option<u8>,
    sq_psn: u32,
    pkey_index: u16,
    access_flags: Option<AccessFlags>,
    path_mtu: Option<Mtu>,
    service_level: u8,
    traffic_class: u8,
    hop_limit: u8,
    max_read_atomic: u8,
    max_dest_read_atomic: u8,
    min_rnr_timer: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
}

impl Default for RcOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RcOptions {
    /// Creates options with port 1 and the defaults of the setters. The first packet sequence number is random, so that
    /// late packets of an earlier connection are rejected.
    pub fn new() -> Self {
        Self {
            port: 1,
            gid_index: None,
            sq_psn: RandomState::new().build_hasher().finish() as u32 & LARGEST_24_BIT,
            pkey_index: 0,
            access_flags: None,
            path_mtu: None,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            max_read_atomic: 16,
            max_dest_read_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
        }
    }

    /// Sets the port of this end, from 1. Default: 1.
    pub fn setup_port(&mut self, port: u8) -> &mut Self {
        self.port = port;
        self
    }

    /// Sets the index in the port's GID table
    /// ([`query_gid_table`](crate::ibverbs::device_context::DeviceContext::query_gid_table) lists it). The default is 0
    /// on Ethernet. On InfiniBand, packets carry only LIDs unless an index is set.
    ///
    /// On RoCE, the GIDs of both ends must have the same RoCE version, and must be either both IPv4 or both IPv6
    /// addresses.
    pub fn setup_gid_index(&mut self, gid_index: u8) -> &mut Self {
        self.gid_index = Some(gid_index);
        self
    }

    /// Sets the first packet sequence number to send, 24 bits. Default: random.
    pub fn setup_sq_psn(&mut self, sq_psn: u32) -> &mut Self {
        self.sq_psn = sq_psn;
        self
    }

    /// Sets the index in the port's table of partition keys. Default: 0, the default partition.
    pub fn setup_pkey_index(&mut self, pkey_index: u16) -> &mut Self {
        self.pkey_index = pkey_index;
        self
    }

    /// Sets the operations that the peer may execute through this queue pair, in memory whose access rights also permit
    /// them. By default the peer may write. For RC it may also read, and execute atomics if the device supports them.
    pub fn setup_access_flags(&mut self, access_flags: AccessFlags) -> &mut Self {
        self.access_flags = Some(access_flags);
        self
    }

    /// Sets the largest payload of a packet. Default: the smaller active MTU of both ports.
    pub fn setup_path_mtu(&mut self, path_mtu: Mtu) -> &mut Self {
        self.path_mtu = Some(path_mtu);
        self
    }

    /// Sets the service level, 0 to 15. On Ethernet its lower three bits are the priority of the VLAN tag. Default: 0.
    pub fn setup_service_level(&mut self, service_level: u8) -> &mut Self {
        self.service_level = service_level;
        self
    }

    /// Sets the traffic class. With RoCE v2 it is the TOS byte of the IP header. Default: 0.
    pub fn setup_traffic_class(&mut self, traffic_class: u8) -> &mut Self {
        self.traffic_class = traffic_class;
        self
    }

    /// Sets the hop limit of packets with a GID, 1 to 255. Default: 64.
    pub fn setup_hop_limit(&mut self, hop_limit: u8) -> &mut Self {
        self.hop_limit = hop_limit;
        self
    }

    /// Sets the maximum number of outstanding reads and atomics of this end. The connection uses a smaller number if
    /// the device or the peer supports only fewer. Default: 16.
    pub fn setup_max_read_atomic(&mut self, max_read_atomic: u8) -> &mut Self {
        self.max_read_atomic = max_read_atomic;
        self
    }

    /// Sets the maximum number of the peer's outstanding reads and atomics. The connection uses a smaller number if the
    /// device supports only fewer. Default: 16.
    pub fn setup_max_dest_read_atomic(&mut self, max_dest_read_atomic: u8) -> &mut Self {
        self.max_dest_read_atomic = max_dest_read_atomic;
        self
    }

    /// Sets the time that the peer waits before it retries a message for which no receive was posted, as the code of
    /// the specification (0 to 31). Default: 12, which is 0.64 ms.
    pub fn setup_min_rnr_timer(&mut self, min_rnr_timer: u8) -> &mut Self {
        self.min_rnr_timer = min_rnr_timer;
        self
    }

    /// Sets the local ACK timeout, which is 4.096 us × 2^`timeout`. The value 0 means that there is no timeout.
    /// Default: 14, which is 67 ms.
    pub fn setup_timeout(&mut self, timeout: u8) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// Sets how often a request is retransmitted if the peer does not acknowledge it, 0 to 7. Default: 7.
    pub fn setup_retry_cnt(&mut self, retry_cnt: u8) -> &mut Self {
        self.retry_cnt = retry_cnt;
        self
    }

    /// Sets the number of retries while the peer has no receive posted, 0 to 6. The value 7 means that there is no
    /// limit. Default: 7.
    pub fn setup_rnr_retry(&mut self, rnr_retry: u8) -> &mut Self {
        self.rnr_retry = rnr_retry;
        self
    }

    /// Whether packets carry GIDs.
    fn needs_grh(&self, port: &PortAttr) -> bool {
        port.link_layer() == LinkLayer::Ethernet || self.gid_index.is_some()
    }
}

/// The error of [`connect_rc`](super::QueuePair::connect_rc) and [`connect_uc`](super::QueuePair::connect_uc).
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectQueuePairError {
    /// The queue pair has another transport service.
    #[error("cannot connect a queue pair of type {found:?} as {expected:?}; call the method of its type")]
    WrongType {
        /// The type of the queue pair.
        found: QueuePairType,
        /// The type that the method connects.
        expected: QueuePairType,
    },
    /// The peer's endpoint has an invalid value.
    #[error("malformed endpoint of the peer: {0}")]
    InvalidEndpoint(String),
    /// The port or the device could not be queried.
    #[error(transparent)]
    Query(#[from] VerbError),
    /// A transition failed. The error names the transition and the attribute at fault.
    #[error(transparent)]
    Modify(#[from] ModifyQueuePairError),
}

crate::error::debug_is_text!(ConnectQueuePairError);

impl QueuePairCore {
    /// Returns the data that the peer needs to connect to this queue pair.
    pub(crate) fn local_endpoint(&self, options: &RcOptions) -> Result<QueuePairEndpoint, VerbError> {
        let context = self.context();
        let port = context.query_port(options.port)?;
        let gid_index = options.gid_index.unwrap_or(0);
        let gid = context.query_gid(options.port, gid_index.into())?;
        if gid.is_zero() && port.link_layer() == LinkLayer::Ethernet {
            return Err(VerbError::new("ibv_query_gid", Errno::ENODATA).with_hint(format!(
                "GID index {gid_index} of port {} is not in use; choose one of DeviceContext::query_gid_table",
                options.port
            )));
        }
        Ok(QueuePairEndpoint {
            qp_num: self.qp_number(),
            psn: options.sq_psn,
            lid: port.lid(),
            gid,
            mtu: port.active_mtu(),
            max_dest_read_atomic: at_most(options.max_dest_read_atomic, context.query_device()?.max_qp_rd_atom()),
        })
    }

    /// Moves a queue pair of type `expected` to ReadyToSend, with calls of `modify`.
    pub(crate) fn connect(
        &self,
        expected: QueuePairType,
        remote: &QueuePairEndpoint,
        options: &RcOptions,
        modify: impl Fn(&QueuePairAttribute) -> Result<(), ModifyQueuePairError>,
    ) -> Result<(), ConnectQueuePairError> {
        if self.qp_type() != expected {
            return Err(ConnectQueuePairError::WrongType { found: self.qp_type(), expected });
        }
        let port = self.context().query_port(options.port)?;
        check(remote, options.needs_grh(&port)).map_err(ConnectQueuePairError::InvalidEndpoint)?;
        let all = self.attributes(remote, options, &port)?;
        let steps = [
            (QueuePairState::Reset, QueuePairState::Init),
            (QueuePairState::Init, QueuePairState::ReadyToReceive),
            (QueuePairState::ReadyToReceive, QueuePairState::ReadyToSend),
        ];
        for (from, to) in steps {
            // Each transition sets only the attributes that it requires.
            let needed = standard_transition(expected, from, to).map(|transition| transition.needed);
            let mut step = QueuePairAttribute::from_raw(*all.raw(), needed.unwrap_or_default());
            modify(step.setup_state(to))?;
        }
        Ok(())
    }

    /// Returns the attributes of all three transitions.
    fn attributes(
        &self,
        remote: &QueuePairEndpoint,
        options: &RcOptions,
        port: &PortAttr,
    ) -> Result<QueuePairAttribute, VerbError> {
        let device = self.context().query_device()?;
        let access = options.access_flags.unwrap_or_else(|| {
            if self.qp_type() != QueuePairType::ReliableConnection {
                return AccessFlags::RemoteWrite;
            }
            let read_write = AccessFlags::RemoteWrite | AccessFlags::RemoteRead;
            // Drivers reject the access flag for atomics on devices that do not support atomics.
            let has_atomics = device.atomic_cap() != AtomicCapability::None;
            if has_atomics { read_write | AccessFlags::RemoteAtomic } else { read_write }
        });
        let max_read_atomic = options.max_read_atomic.min(remote.max_dest_read_atomic);
        let mut way = AddressHandleAttribute::new();
        way.setup_port(options.port).setup_dest_lid(remote.lid).setup_service_level(options.service_level);
        if options.needs_grh(port) {
            let gid_index = options.gid_index.unwrap_or(0);
            way.setup_grh(&remote.gid, 0, gid_index, options.hop_limit, options.traffic_class);
        }
        let mut all = QueuePairAttribute::new();
        all.setup_port(options.port)
            .setup_pkey_index(options.pkey_index)
            .setup_access_flags(access)
            .setup_address_vector(&way)
            .setup_path_mtu(options.path_mtu.unwrap_or_else(|| remote.mtu.min(port.active_mtu())))
            .setup_dest_qp_num(remote.qp_num)
            .setup_rq_psn(remote.psn)
            .setup_sq_psn(options.sq_psn)
            .setup_max_read_atomic(at_most(max_read_atomic, device.max_qp_init_rd_atom()))
            .setup_max_dest_read_atomic(at_most(options.max_dest_read_atomic, device.max_qp_rd_atom()))
            .setup_min_rnr_timer(options.min_rnr_timer)
            .setup_timeout(options.timeout)
            .setup_retry_cnt(options.retry_cnt)
            .setup_rnr_retry(options.rnr_retry);
        Ok(all)
    }
}

/// Checks the peer's endpoint. Drivers do not reject invalid values but mask or use them, and requests then exhaust
/// their retries.
fn check(remote: &QueuePairEndpoint, has_grh: bool) -> Result<(), String> {
    // Numbers 0 and 1 are the management queue pairs, and the largest number is reserved for multicast.
    if !(2..LARGEST_24_BIT).contains(&remote.qp_num) {
        return Err(format!("QP number {:#x} is reserved or exceeds 24 bits", remote.qp_num));
    }
    if remote.psn > LARGEST_24_BIT {
        return Err(format!("packet sequence number {:#x} exceeds 24 bits", remote.psn));
    }
    if remote.mtu.name().is_none() {
        return Err(format!("MTU code {} is unknown", remote.mtu.raw()));
    }
    if has_grh && remote.gid.is_zero() {
        return Err("it has no GID, which Ethernet and a GID index require".to_owned());
    }
    if !has_grh && !UNICAST_LIDS.contains(&remote.lid) {
        return Err(format!("LID {:#x} is not that of a port", remote.lid));
    }
    Ok(())
}

fn at_most(wanted: u8, limit: u32) -> u8 {
    u8::try_from(limit).map_or(wanted, |limit| wanted.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_psn_is_random_with_24_bits() {
        let (one, other) = (RcOptions::new(), RcOptions::new());
        assert!(one.sq_psn <= LARGEST_24_BIT && other.sq_psn <= LARGEST_24_BIT);
        assert_ne!(one.sq_psn, other.sq_psn, "equal once in 16 million runs");
    }

    #[test]
    fn malformed_endpoint_names_the_value() {
        let good = QueuePairEndpoint { qp_num: 2, gid: "::1".parse().unwrap(), ..Default::default() };
        let wrong = |endpoint: QueuePairEndpoint| check(&endpoint, true).unwrap_err();
        assert_eq!(check(&good, true), Ok(()));
        for qp_num in [0, 1, LARGEST_24_BIT, 1 << 24] {
            let text = format!("QP number {qp_num:#x} is reserved or exceeds 24 bits");
            assert_eq!(wrong(QueuePairEndpoint { qp_num, ..good }), text);
        }
        let psn = QueuePairEndpoint { psn: u32::MAX, ..good };
        assert_eq!(wrong(psn), "packet sequence number 0xffffffff exceeds 24 bits");
        assert_eq!(wrong(QueuePairEndpoint { mtu: Mtu::from_raw(0), ..good }), "MTU code 0 is unknown");
        let no_gid = QueuePairEndpoint { gid: Default::default(), lid: 7, ..good };
        assert_eq!(wrong(no_gid), "it has no GID, which Ethernet and a GID index require");
        assert_eq!(check(&no_gid, false), Ok(()), "InfiniBand without a GRH");
        for lid in [0, 0xc000] {
            let endpoint = QueuePairEndpoint { lid, ..no_gid };
            assert_eq!(check(&endpoint, false), Err(format!("LID {lid:#x} is not that of a port")));
        }
    }

    #[test]
    fn device_limits_bound_reads() {
        assert_eq!([at_most(16, 0), at_most(16, 8), at_most(16, 128), at_most(16, 1000)], [0, 8, 16, 16]);
    }
}
