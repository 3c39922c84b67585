//! Where a message goes and where it comes from: GIDs, the table of GIDs of a port, and address vectors.
//!
//! | C | here |
//! |---|---|
//! | `union ibv_gid` | [`Gid`] |
//! | `enum ibv_gid_type` | [`GidType`] |
//! | `struct ibv_gid_entry` | [`GidEntry`] |
//! | `struct ibv_ah_attr`, `struct ibv_global_route` | [`AddressHandleAttribute`] |
//! | `enum ibv_rate` | [`StaticRate`] |
//!
//! The tables are read with [`query_gid_table`](super::device_context::DeviceContext::query_gid_table) and its neighbours.

mod address_handle;
mod gid;
mod gid_entry;
mod gid_type;
mod handle;
mod static_rate;

pub use address_handle::AddressHandleAttribute;
pub use gid::{Gid, ParseGidError};
pub use gid_entry::{GidEntry, NetdevNameError};
pub use gid_type::GidType;
pub use handle::AddressHandle;
pub use static_rate::StaticRate;
