//! Finding devices, and what to say when there is none.

use std::env;

use anyhow::{Result, anyhow};
use sideway::ibverbs::device::{Device, DeviceList, GetDeviceListError};

/// The list of devices, which has at least one: those of the system, and after them those of softrnic, which are in this
/// process and reach nobody outside of it. The environment variable `SOFTRNIC_DEVICES` says which these are.
///
/// # Errors
///
/// Says what is wrong with that variable; how to get a device when there is none, and what is missing when the library cannot
/// be loaded.
pub fn device_list() -> Result<DeviceList> {
    softrnic::register()?;
    match DeviceList::new() {
        Ok(list) if list.is_empty() => Err(no_device()),
        Ok(list) => Ok(list),
        // A kernel whose RDMA modules are not loaded has no device.
        Err(GetDeviceListError::Verb(error)) if error.errno().raw() == libc::ENOSYS => Err(no_device()),
        Err(error) => Err(error.into()),
    }
}

/// The device of this name, or all devices where none is named.
///
/// # Errors
///
/// Says which devices there are when the named one is not among them, and [how to get one](no_device) when there is none.
pub fn devices<'list>(list: &'list DeviceList, name: Option<&str>) -> Result<Vec<Device<'list>>> {
    match name {
        _ if list.is_empty() => Err(no_device()),
        Some(name) => Ok(vec![list.find(name)?]),
        None => Ok(list.iter().collect()),
    }
}

/// Says that there is no device, and how to get one in software.
pub fn no_device() -> anyhow::Error {
    let program = env::args().next().unwrap_or_else(|| "PROGRAM".to_owned());
    anyhow!(
        "there is no RDMA device; root makes one in software with `modprobe rdma_rxe`, `ip link set eth0 up` and \
         `rdma link add rxe_0 type rxe netdev eth0` (for any Ethernet interface), and without root \
         `cargo xtask softroce -- {program}` runs this program in a virtual machine that has one; for what happens in one \
         process, softrnic has one unless `SOFTRNIC_DEVICES` is 0"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_no_line_break_and_says_what_to_try() {
        let text = format!("{:#}", no_device());
        assert!(!text.contains('\n'));
        for part in ["modprobe rdma_rxe", "rdma link add", "cargo xtask softroce", "SOFTRNIC_DEVICES"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
