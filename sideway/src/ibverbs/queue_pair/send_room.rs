//! Determines whether a driver checks an extended send queue for overflow before it writes a request.
//!
//! The driver is identified by the name of the file that contains its functions.

use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::quirks::{driver_file, is_in_process, provider};

/// The drivers that check (as of rdma-core 64), and the libraries that contain softrnic.
const CHECKED: [&str; 6] = ["librxe", "libefa", "libionic", "libsoftrnic", "librdma_mummy", "libibverbs"];

/// The drivers that do not check, and the hns driver, which miscounts its requests if a batch is posted before
/// ReadyToSend.
const UNCHECKED: [&str; 3] = ["libmlx5", "libbnxt_re", "libhns"];

/// The vendor ID of a device of softrnic that resembles a ConnectX. A program that is tested on it shall meet the same
/// rules as on the NIC.
const LIKE_MLX5: u32 = 0x02c9;

/// Returns the name of the driver of an open device, or `None` if the driver checks.
pub(super) fn unchecked_driver(context: &DeviceContext) -> Option<String> {
    let file = driver_file(context).unwrap_or_default();
    let is_of = |drivers: &[&str]| drivers.iter().any(|driver| file.starts_with(driver));
    if is_of(&CHECKED) || !is_of(&UNCHECKED) && is_in_process(context) {
        let is_like_mlx5 = provider(context) == Some("softrnic")
            && context.query_device().is_ok_and(|attributes| attributes.vendor_id() == LIKE_MLX5);
        return is_like_mlx5.then(|| "libmlx5, which this device resembles,".to_owned());
    }
    Some(if file.is_empty() { "the driver".to_owned() } else { file })
}
