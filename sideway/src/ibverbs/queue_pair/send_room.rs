//! Which drivers check that an extended send queue has room before they write a request.
//!
//! The driver of a device is known by the file that its functions are in.

use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::quirks::{driver_file, is_of_the_program};

/// Drivers that check (rdma-core 64), and libraries that have softrnic in them.
const CHECKED: [&str; 6] = ["librxe", "libefa", "libionic", "libsoftrnic", "librdma_mummy", "libibverbs"];

/// Drivers that do not, and hns, which loses count of its requests if a batch is posted before ReadyToSend.
const UNCHECKED: [&str; 3] = ["libmlx5", "libbnxt_re", "libhns"];

/// The driver of an open device, unless it checks.
pub(super) fn unchecked_driver(context: &DeviceContext) -> Option<String> {
    let file = driver_file(context).unwrap_or_default();
    let is_of = |drivers: &[&str]| drivers.iter().any(|driver| file.starts_with(driver));
    if is_of(&CHECKED) || !is_of(&UNCHECKED) && is_of_the_program(context) {
        return None;
    }
    Some(if file.is_empty() { "the driver".to_owned() } else { file })
}
