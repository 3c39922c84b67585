//! What rdma-core added after release 44, from which the generated bindings are made.
//!
//! Additions to libibverbs and librdmacm are compatible: a new function has a new name, a new constant a new value, a
//! new field stands at the end. So they stand here by hand until the bindings are made from a newer release. Functions
//! are looked up by name like all others: a library older than the function fails with `EOPNOTSUPP`, and
//! `library()?.NAME()` names what is missing. Each says which version of the symbol map it came with:
//!
//! | version | what |
//! |---|---|
//! | (rdma-core 45) | flush, by `IBV_QP_EX_WITH_FLUSH`; no function of the library |
//! | IBVERBS_1.15 | DMA handles, [`ibv_reg_mr_ex`] |
//! | IBVERBS_1.16 (rdma-core 62) | [`ibv_query_port_speed`] |
//! | IBVERBS_1.17 | buffers allocated by the provider |
//! | IBVERBS_1.18 | completion counters |
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

/// What bears a name of C, for the root of the crate.
pub(crate) mod c {
    pub use super::constants::*;
    pub use super::extended::*;
    pub use super::ibverbs::c::*;
    pub use super::rdmacm::c::*;
    pub use super::types::*;
}
