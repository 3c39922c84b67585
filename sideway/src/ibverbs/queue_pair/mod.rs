//! Queue pairs, to which requests are posted.
//!
//! ```text
//! QueuePairBuilder ── build ───────► BasicQueuePair     ibv_create_qp     ibv_post_send
//!                  ── build_ex ────► ExtendedQueuePair  ibv_create_qp_ex  ibv_wr_start, ibv_wr_send, … ibv_wr_complete
//!                  ── build_generic ► GenericQueuePair  either, as the device has it
//! ```
//!
//! A pair contains a send queue and a receive queue. Posting to a queue takes it by `&mut`. [`queues`](Pair::queues)
//! borrows both at once, and [`split`](Pair::split) moves them out, so that one thread can post sends while another
//! posts receives, without a lock between them.
//!
//! | topic | items |
//! |---|---|
//! | building | [`QueuePairBuilder`]; without queues: [`TargetQueuePair`] |
//! | services and their requests | [`Service`], [`Connected`], [`Datagram`], [`RawPacket`], [`Xrc`] |
//! | changing and querying the state | [`QueuePair`], [`QueuePairAttribute`], [`QueuePairState`]; attributes of transitions: [`Transition`]; errors: [`ModifyQueuePairError`] |
//! | connecting to one peer | [`connect_rc`](QueuePair::connect_rc), [`RcOptions`], [`QueuePairEndpoint`] |
//! | posting | [`SendQueue`], [`PostSendGuard`], [`ReceiveQueue`], [`PostRecvGuard`]; lists that are built once: [`PreparedSends`] |
//! | other attributes | [`Ece`], [`RateLimit`], [`DataInOrder`], [`PathMigrationState`] |
//! | teardown, with buffers | [`teardown`] |

mod attribute;
mod attribute_mask;
mod basic;
mod builder;
pub(crate) mod common;
mod connect;
pub(super) mod control;
mod core;
mod counter;
mod create;
mod data_in_order;
mod ece;
mod endpoint;
mod extended;
mod generic;
mod init_attribute;
mod limits;
mod maker;
mod mend;
mod missing_operation;
mod modify_error;
mod multicast;
mod packet_offloads;
mod pair;
mod parents;
mod prepared;
mod rate_limit;
mod send_context;
mod send_room;
mod service;
mod state;
mod target;
pub mod teardown;
mod transition;
mod vendor;

pub use self::attribute::QueuePairAttribute;
pub use self::attribute_mask::QueuePairAttributeMask;
pub use self::basic::{BasicPostSendGuard, BasicSendQueue};
pub use self::builder::QueuePairBuilder;
pub use self::common::QueuePair;
pub use self::connect::{ConnectQueuePairError, RcOptions};
pub(crate) use self::core::{Kept, Kind, Parents, QueuePairCore};
pub use self::data_in_order::{DataInOrder, DataInOrderFlags};
pub use self::ece::Ece;
pub use self::endpoint::QueuePairEndpoint;
pub use self::extended::{ExtendedPostSendGuard, ExtendedSendQueue};
pub use self::generic::{GenericPostSendGuard, GenericSendQueue};
pub use self::init_attribute::{
    QueuePairCapabilities, QueuePairCreateFlags, QueuePairInitAttribute, SendOperationFlags,
};
pub(crate) use self::maker::Maker;
pub(crate) use self::missing_operation::refuse;
pub use self::modify_error::ModifyQueuePairError;
pub use self::pair::{BasicQueuePair, ExtendedQueuePair, GenericQueuePair, Pair, QueuePairRef, SendQueue};
pub use self::prepared::{PrepareSendGuard, PreparedRequest, PreparedSends};
pub use self::rate_limit::RateLimit;
pub(crate) use self::send_context::SendContext;
pub use self::service::{BasicService, Connected, Datagram, Offers, RawPacket, ReadsDataAlone, Service, Xrc};
pub use self::state::{PathMigrationState, QueuePairState, QueuePairType};
pub use self::target::TargetQueuePair;
pub use self::transition::Transition;
pub(crate) use self::transition::{TransitionTable, standard_transition};
// In sideway 0.4, the types of the arguments of a queue pair's methods are in this module.
pub use super::work_request::{
    LocalBufferHandle, PostRecvError, PostRecvGuard, PostSendError, PostSendGuard, ReceiveQueue, RecvWorkRequestHandle,
    SetInlineData, SetScatterGatherEntry, WorkRequestFlags, WorkRequestHandle, WorkRequestOperationType,
};
