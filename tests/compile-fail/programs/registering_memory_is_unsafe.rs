//! The device and peers access the memory. The caller must guarantee that they may do so.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::protection_domain::ProtectionDomain;

fn register(pd: &Arc<ProtectionDomain>) {
    drop(pd.reg_mr(4096, 1, AccessFlags::LocalWrite));
}

fn main() {}
