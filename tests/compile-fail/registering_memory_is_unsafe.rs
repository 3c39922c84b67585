//! The device, and peers, use the memory: that they may is the caller's promise.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::protection_domain::ProtectionDomain;

fn register(pd: &Arc<ProtectionDomain>) {
    drop(pd.reg_mr(4096, 1, AccessFlags::LocalWrite));
}

fn main() {}
