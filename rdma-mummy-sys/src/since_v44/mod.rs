//! Additions to rdma-core after release 44, the release of the generated bindings.
//!
//! Additions to libibverbs and librdmacm are compatible: new functions have new names, new constants new values, and
//! new fields are at the end. They are declared here by hand until the bindings are generated from a newer release.
//! Functions are looked up by name like all others: on an older library they fail with `EOPNOTSUPP`, and
//! `library()?.NAME()` returns an error that names the missing function. The version is that of the symbol map:
//!
//! | version | additions |
//! |---|---|
//! | (rdma-core 45) | flush, through `IBV_QP_EX_WITH_FLUSH`; no library function |
//! | IBVERBS_1.15 | DMA handles, [`ibv_reg_mr_ex`] |
//! | IBVERBS_1.16 (rdma-core 62) | [`ibv_query_port_speed`] |
//! | IBVERBS_1.17 | buffers allocated by the provider |
//! | IBVERBS_1.18 | completion counters, [`ibv_export_buf_dmabuf_fd`] |
//! | RDMACM_1.4 | [`rdma_resolve_addrinfo`], [`rdma_write_cm_event`] |

mod buffers;
mod constants;
mod extended;
pub mod ibverbs;
pub mod rdmacm;
mod types;

pub use c::*;
pub use ibverbs::IbverbsSinceV44;
pub use rdmacm::RdmacmSinceV44;

/// The items with C names, for the crate root.
pub(crate) mod c {
    pub use super::constants::*;
    pub use super::extended::*;
    pub use super::ibverbs::c::*;
    pub use super::rdmacm::c::*;
    pub use super::types::*;
}
