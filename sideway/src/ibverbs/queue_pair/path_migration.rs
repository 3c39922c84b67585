//! `enum ibv_mig_state`: where path migration stands.

use rdma_mummy_sys::ibv_mig_state as raw;

use crate::ffi::open_enum;

open_enum! {
    /// `enum ibv_mig_state` — where the migration of a connection to its alternate path stands.
    #[doc(alias = "ibv_mig_state")]
    pub enum PathMigrationState {
        /// On its path, which may be the former alternate one. Set, it makes the queue pair migrate now.
        Migrated = raw::IBV_MIG_MIGRATED.0,
        /// Asked to arm. Set it after an alternate path.
        Rearm = raw::IBV_MIG_REARM.0,
        /// Both sides are armed, and migrate when the path fails. The device goes there by itself.
        Armed = raw::IBV_MIG_ARMED.0,
    }
}
