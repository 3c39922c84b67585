//! Finding devices, and what to say when there is none.

use std::env;

use anyhow::{Result, anyhow, bail};
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList, GetDeviceListError};
use sideway::ibverbs::device_context::DeviceContext;

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
    let advice = advice();
    anyhow!(
        "there is no RDMA device; {advice}; for what happens in one process, softrnic has one unless `SOFTRNIC_DEVICES` is 0"
    )
}

/// Says that no device has connections by address; those of softrnic do, unless `SOFTRNIC_DEVICES` is 0.
pub fn no_device_with_connections() -> anyhow::Error {
    anyhow!("there is no RDMA device that has connections by address; {}", advice())
}

/// Sees to it that a program of its own can be reached from the device. Those of softrnic are in this process and do not get out of
/// it yet: who waits for another there waits for ever.
///
/// # Errors
///
/// Says so, and how to get another device.
pub fn reaches_other_programs(context: &DeviceContext) -> Result<()> {
    // A device of the kernel's has a folder.
    if context.sysfs_path().is_some() {
        return Ok(());
    }
    bail!(
        "{} is softrnic's and reaches this process only, not another program yet; a device of the system with an active port is \
         taken before it, and -d names any; {}",
        context.name(),
        advice()
    )
}

/// How to get a device that reaches other programs.
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

    #[test]
    fn a_soft_device_is_not_for_two_programs() -> Result<()> {
        softrnic::Builder::new().device("soft0").register()?;
        let context = DeviceList::new()?.find("soft0")?.open()?;
        let Err(error) = reaches_other_programs(&context) else { panic!("it reaches this process only") };
        check(error, &["soft0", "this process only", "-d"]);
        Ok(())
    }
}
