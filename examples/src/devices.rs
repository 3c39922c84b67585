//! Finding devices, and what to say when there is none.

use std::env;

use anyhow::{Result, anyhow};
use sideway::ibverbs::device::{Device, DeviceList, GetDeviceListError};

/// The list of devices, which has at least one: those of the system, and after them those of softrnic, which reach the programs of
/// this host. The environment variable `SOFTRNIC_DEVICES` says which these are.
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
    let advice = advice();
    anyhow!(
        "there is no RDMA device; softrnic has one for programs of this host unless `SOFTRNIC_DEVICES` is 0; {advice}"
    )
}

/// Says that no device has connections by address; those of softrnic do, unless `SOFTRNIC_DEVICES` is 0.
pub fn no_device_with_connections() -> anyhow::Error {
    anyhow!("there is no RDMA device that has connections by address; {}", advice())
}

/// How to get a device of the kernel's.
fn advice() -> String {
    let program = env::args().next().unwrap_or_else(|| "PROGRAM".to_owned());
    format!(
        "root makes one in software with `modprobe rdma_rxe`, `ip link set eth0 up` and `rdma link add rxe_0 type rxe netdev \
         eth0` (for any Ethernet interface), and without root `cargo xtask softroce -- {program}` runs this program in a virtual \
         machine that has one"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADVICE: [&str; 3] = ["modprobe rdma_rxe", "rdma link add rxe_0 type rxe netdev eth0", "cargo xtask softroce"];

    #[track_caller]
    fn check(error: anyhow::Error, parts: &[&str]) {
        let text = format!("{error:#}");
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
        for part in ADVICE.iter().chain(parts) {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_sentence_has_no_line_break_and_says_what_to_try() {
        check(no_device(), &["SOFTRNIC_DEVICES"]);
        check(no_device_with_connections(), &["connections by address"]);
    }
}
