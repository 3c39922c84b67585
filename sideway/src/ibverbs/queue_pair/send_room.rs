//! Drivers that check an extended send queue for overflow before writing a request.
//!
//! A driver is identified by the file that contains its functions.

use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::quirks::{driver_file, is_in_process};

/// Drivers that check (rdma-core 64), and libraries that contain softrnic.
const CHECKED: [&str; 6] = ["librxe", "libefa", "libionic", "libsoftrnic", "librdma_mummy", "libibverbs"];

/// Drivers that do not check, and hns, which miscounts its requests if a batch is posted before ReadyToSend.
const UNCHECKED: [&str; 3] = ["libmlx5", "libbnxt_re", "libhns"];

/// Returns the driver of an open device; `None` if the driver checks.
pub(super) fn unchecked_driver(context: &DeviceContext) -> Option<String> {
    let file = driver_file(context).unwrap_or_default();
    let is_of = |drivers: &[&str]| drivers.iter().any(|driver| file.starts_with(driver));
    if is_of(&CHECKED) || !is_of(&UNCHECKED) && is_in_process(context) {
        return None;
    }
    Some(if file.is_empty() { "the driver".to_owned() } else { file })
}
