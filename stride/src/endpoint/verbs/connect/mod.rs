//! Connects queue pairs, either with exchanged addresses or through librdmacm.

mod addresses;
mod dynamic;
mod manual;
mod rdma_cm;

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    Datagram, GenericQueuePair, ModifyQueuePairError, QueuePair, QueuePairAttribute, QueuePairState,
};
use stride_run::DatagramSend;

pub(super) use self::manual::Manual;
pub(super) use self::rdma_cm::Manager;
use super::pairs::vendor::{Dynamic, Scalable};
use super::pairs::{Pairs, XrcPair};
use crate::endpoint::{Intake, PeerInfo, QpAddress};
use crate::plan::Plan;

/// The value of `min_rnr_timer` that means 0.64 ms.
const RNR_TIMER: u8 = 12;

/// The addresses of a queue pair and of its peer.
#[derive(Clone, Copy)]
pub(super) struct Addresses<'d> {
    pub(super) own: &'d QpAddress,
    pub(super) their: &'d QpAddress,
}

impl<'d> Addresses<'d> {
    /// Returns the addresses of all queue pairs of a port, in order.
    pub(super) fn all(own: &'d PeerInfo, theirs: &'d PeerInfo) -> impl Iterator<Item = Self> {
        own.queue_pairs.iter().zip(&theirs.queue_pairs).map(|(own, their)| Self { own, their })
    }
}

/// A queue pair that is not connected yet.
pub(super) enum Unconnected<'p> {
    Connected(&'p GenericQueuePair),
    /// A datagram queue pair, and the destination of its datagrams, which is set later.
    Datagram(&'p GenericQueuePair<Datagram>, &'p mut Option<DatagramSend>),
    Xrc(&'p XrcPair),
    /// A queue pair that contains the destination of its requests, which is set later.
    Dynamic(&'p mut Dynamic),
    Scalable(&'p mut Scalable),
}

impl Pairs {
    pub(super) fn unconnected(&mut self) -> Vec<Unconnected<'_>> {
        match self {
            Self::Connected(pairs) => pairs.iter().map(Unconnected::Connected).collect(),
            Self::Datagram(pairs) => {
                pairs.iter_mut().map(|(pair, target)| Unconnected::Datagram(pair, target)).collect()
            }
            Self::Xrc(pairs) => pairs.iter().map(Unconnected::Xrc).collect(),
            Self::Dynamic(pairs) => pairs.iter_mut().map(Unconnected::Dynamic).collect(),
            Self::Scalable(pairs) => pairs.iter_mut().map(Unconnected::Scalable).collect(),
        }
    }
}

/// Parameters that all queue pairs of a side share.
pub(super) struct Shared<'p> {
    pub(super) plan: &'p Plan,
    pub(super) mtu: Mtu,
    /// How many reads and atomics a queue pair can have outstanding as requester. The next field is the same number as
    /// responder.
    pub(super) initiator_depth: u8,
    pub(super) responder_resources: u8,
}

/// The path of one queue pair.
#[derive(Clone, Copy)]
struct Route {
    port: u8,
    pkey_index: u16,
    way: AddressHandleAttribute,
    own_psn: u32,
    their_psn: u32,
    their_number: u32,
}

/// In which direction a connection carries requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Both,
    /// Requests go from this side to the peer.
    Out,
    /// Requests go from the peer to this side.
    In,
}

/// Parameters of a datagram queue pair.
struct Address {
    port: u8,
    pkey_index: u16,
    qkey: u32,
    psn: u32,
    /// How often a message is sent again if it finds no receive. `None` if the device does not support a limit.
    retries: Option<u8>,
}

/// Returns the numbers of the peer's XRC queue pair that receives, and of its shared receive queue.
fn intake(their: &QpAddress) -> Result<(u32, u32)> {
    match their.intake {
        Some(Intake::Xrc { number, srq }) => Ok((number, srq)),
        Some(Intake::Dc { .. }) | None => {
            bail!("the peer sent no XRC shared receive queue; run the same version on both sides")
        }
    }
}

impl Shared<'_> {
    /// Modifies a queue pair to the states in which it receives and sends, as far as the direction requires them.
    fn connect<F>(&self, modify: F, route: &Route, direction: Direction) -> Result<()>
    where
        F: Fn(&QueuePairAttribute) -> Result<(), ModifyQueuePairError>,
    {
        let is_reliable = self.plan.attributes.transport.is_reliable();
        let mut init = QueuePairAttribute::new();
        let access = AccessFlags::RemoteWrite
            | if is_reliable { AccessFlags::RemoteRead | AccessFlags::RemoteAtomic } else { AccessFlags::empty() };
        init.setup_state(QueuePairState::Init).setup_pkey_index(route.pkey_index).setup_port(route.port);
        modify(init.setup_access_flags(access))?;
        let mut receive = QueuePairAttribute::new();
        receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(self.mtu)
            .setup_dest_qp_num(route.their_number)
            .setup_rq_psn(route.their_psn)
            .setup_address_vector(&route.way);
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(route.own_psn);
        if is_reliable && direction != Direction::Out {
            receive.setup_max_dest_read_atomic(self.responder_resources).setup_min_rnr_timer(RNR_TIMER);
        }
        if is_reliable {
            send.setup_timeout(self.plan.attributes.qp_timeout);
        }
        if is_reliable && direction != Direction::In {
            send.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(self.initiator_depth);
        }
        modify(&receive)?;
        Ok(modify(&send)?)
    }

    /// Modifies a datagram queue pair to the state RTS.
    fn make_ready(pair: &impl QueuePair, address: &Address) -> Result<()> {
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(address.pkey_index).setup_port(address.port);
        pair.modify(init.setup_qkey(address.qkey))?;
        let mut receive = QueuePairAttribute::new();
        pair.modify(receive.setup_state(QueuePairState::ReadyToReceive))?;
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(address.psn);
        if let Some(retries) = address.retries {
            send.setup_rnr_retry(retries);
        }
        Ok(pair.modify(&send)?)
    }
}
