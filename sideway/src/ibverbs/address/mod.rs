//! The addresses of messages: GIDs, the GID tables of ports, and address vectors.
//!
//! | C | Rust |
//! |---|---|
//! | `union ibv_gid` | [`Gid`] |
//! | `enum ibv_gid_type` | [`GidType`] |
//! | `struct ibv_gid_entry` | [`GidEntry`] |
//! | `struct ibv_ah_attr`, `struct ibv_global_route` | [`AddressHandleAttribute`] |
//! | `struct ibv_ah` | [`AddressHandle`] |
//! | `struct ibv_grh` | [`GlobalRoutingHeader`] |
//! | `enum ibv_rate` | [`StaticRate`] |
//!
//! Read the tables with [`query_gid_table`](super::device_context::DeviceContext::query_gid_table) and related methods.

mod address_handle;
mod address_handle_attribute;
mod ethernet;
mod from_completion;
mod global_routing_header;
mod multicast;
mod static_rate;

pub use super::device_context::gid::{Gid, ParseGidError};
pub use super::device_context::gid_entry::{GidEntry, GidType, NetdevNameError};
pub use address_handle::AddressHandle;
pub use address_handle_attribute::{AddressHandleAttribute, flow_label_to_udp_sport};
pub use ethernet::EthernetAddress;
pub use global_routing_header::{GlobalRoutingHeader, RoutingHeaderForm};
pub use static_rate::StaticRate;
