//! Checks for transports that only the devices of one vendor support.

use anyhow::{Context, Result, bail, ensure};
use sideway::efa::{EfaDeviceAttr, EfaDeviceCapabilityFlags as Capability};
use sideway::error::VerbError;
use sideway::ibverbs::device_context::DeviceContext;

use crate::endpoint::{PortInfo, Role};
use crate::plan::{Operation, Plan, Transport};

/// Whether the device belongs to the vendor of this transport.
pub(super) fn has(context: &DeviceContext, transport: Transport) -> bool {
    match transport {
        Transport::Dc => context.query_mlx5_device().is_ok(),
        Transport::Srd => context.query_efa_device().is_ok(),
        Transport::Rc | Transport::Uc | Transport::Ud | Transport::Xrc => true,
    }
}

/// Checks that the device belongs to the vendor of the plan's transport and supports the operation. If the transport
/// limits the length of messages, returns the limit in bytes. If the plan has such a transport, this function loads the
/// vendor's library.
pub(super) fn check(context: &DeviceContext, plan: &Plan, port_info: &PortInfo, role: Role) -> Result<Option<u32>> {
    let of = |vendor| Vendor { vendor, plan, port_info, role };
    match plan.attributes.transport {
        Transport::Dc => {
            of("mlx5 (ConnectX, BlueField)").require(context.query_mlx5_device(), "mlx5_core")?;
            Ok(None)
        }
        Transport::Srd => {
            let vendor = of("EFA");
            let device = vendor.require(context.query_efa_device(), "efa")?;
            vendor.longest(context, &device)
        }
        Transport::Rc | Transport::Uc | Transport::Ud | Transport::Xrc => Ok(None),
    }
}

/// The vendor whose devices a transport requires.
struct Vendor<'v> {
    vendor: &'static str,
    plan: &'v Plan,
    port_info: &'v PortInfo,
    role: Role,
}

impl Vendor<'_> {
    /// Returns the answer of the vendor's library to a query about the device. The kernel driver of the device must be
    /// `driver`.
    fn require<T>(&self, asked: Result<T, VerbError>, driver: &str) -> Result<T> {
        // If the device belongs to another vendor, it would not help to install the library.
        if asked.is_err() && self.port_info.provider != driver {
            let option = match self.role {
                Role::Client => "-d",
                Role::Server => "--remote-device",
            };
            bail!(
                "--transport {} requires a device of {}, and the provider of {} is {}; name another with {option}, or give --transport rc",
                self.transport(),
                self.vendor,
                self.device_of_side(),
                self.port_info.provider
            );
        }
        asked.with_context(|| format!("--transport {}: {}", self.transport(), self.device_of_side()))
    }

    /// Returns the length of the longest message of an EFA device for the plan's operation, in bytes.
    fn longest(&self, context: &DeviceContext, device: &EfaDeviceAttr) -> Result<Option<u32>> {
        let (needed, longest) = match self.plan.workload.operation {
            Operation::Send | Operation::SendWithImmediate => {
                (Capability::empty(), context.query_port(self.port_info.port)?.max_msg_sz())
            }
            Operation::Read => (Capability::Read, device.max_rdma_size()),
            _ => (Capability::Write, device.max_rdma_size()),
        };
        ensure!(
            device.device_caps().contains(needed),
            "--transport srd: {} does not support {}; measure `send`, or name another device",
            self.device_of_side(),
            self.plan.workload.operation
        );
        // The value 0 means that the limit is unknown.
        Ok(Some(longest).filter(|longest| *longest > 0))
    }

    fn transport(&self) -> String {
        self.plan.attributes.transport.to_string().to_lowercase()
    }

    fn device_of_side(&self) -> String {
        let side = match self.role {
            Role::Client => "the client",
            Role::Server => "the server",
        };
        format!("{} of {side}", self.port_info.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::verbs::{description, device};
    use crate::plan::{QpAttributes, SideConfig};

    #[test]
    fn vendor_library_errors_are_reported() {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let (context, port) = device::open_one(&config, &[], |_| true).unwrap();
        let mut port_info = description::port_info(&context, port, &config).unwrap();
        for (transport, driver, verb) in
            [(Transport::Dc, "mlx5_core", "mlx5dv_query_device"), (Transport::Srd, "efa", "efadv_query_device")]
        {
            let plan = Plan { attributes: QpAttributes { transport, ..QpAttributes::default() }, ..Plan::default() };
            port_info.provider = driver.to_owned();
            let why = format!("{:#}", check(&context, &plan, &port_info, Role::Server).unwrap_err());
            let name = transport.to_string().to_lowercase();
            // Either the library is missing, or it does not support this device.
            assert!(why.starts_with(&format!("--transport {name}: soft0 of the server: {verb}: EOPNOTSUPP")), "{why}");
            assert!(!why.contains("requires a device"), "{why}");
        }
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc] {
            assert_eq!(
                check(
                    &context,
                    &Plan { attributes: QpAttributes { transport, ..QpAttributes::default() }, ..Plan::default() },
                    &port_info,
                    Role::Client
                )
                .unwrap(),
                None
            );
        }
    }
}
