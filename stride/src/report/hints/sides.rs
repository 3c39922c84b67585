//! Hints about the devices and processors of both sides.

use super::{Given, Hint, far_sides, same_port, softrnic};
use crate::endpoint::PortInfo;

/// The largest path MTU that a port can have.
const MOST: u32 = 4096;

pub(super) fn hints(given: &Given<'_>) -> Vec<Hint> {
    let mut all = Vec::new();
    all.extend(softrnic(given.plan, given.sides));
    all.extend(
        given
            .sides
            .into_iter()
            .zip(["-d", "--remote-device"])
            .filter_map(|(port_info, option)| gpu_far(port_info, option)),
    );
    all.extend(far_sides(given.sides));
    // Checks the client only, because several names on the server may intentionally select the same port.
    all.extend(same_port(given.sides[0]));
    all.extend(mtu(given));
    all
}

/// Returns a hint if the GPU of a side is on another NUMA node than the device. `option` is the option that selects the
/// device.
fn gpu_far(port_info: &PortInfo, option: &'static str) -> Option<Hint> {
    let far = |port: &PortInfo| {
        let gpu = port.gpu.clone()?;
        let (node, device_node) = (gpu.numa_node?, port.numa_node?);
        let (host, device) = (port.host.clone(), port.device.clone());
        (node != device_node).then_some(Hint::GpuFar { host, gpu, node, device, device_node, option })
    };
    port_info.all().find_map(far)
}

/// Returns a hint if the path MTU limits messages that are larger than one packet.
fn mtu(given: &Given<'_>) -> Option<Hint> {
    let [client, server] = given.sides;
    let ports = client.all().zip(server.all());
    let (path, (client, server)) = given.path.all().zip(ports).min_by_key(|(path, _)| path.mtu)?;
    let mtu = path.mtu;
    let is_small = mtu < MOST && given.rows.iter().any(|row| row.size > u64::from(mtu));
    let is_soft = client.is_soft() || server.is_soft();
    if !is_small || is_soft {
        return None;
    }
    let port = [client, server].into_iter().find(|port_info| port_info.mtu <= mtu);
    if let Some(port_info) = port {
        let is_ethernet = port_info.link_layer != "InfiniBand";
        return Some(Hint::MtuOfPort { host: port_info.host.clone(), mtu, is_ethernet });
    }
    (given.plan.attributes.mtu == Some(mtu)).then_some(Hint::MtuAsked(mtu))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;
    use crate::endpoint::{GpuInfo, SOFTRNIC};

    #[test]
    fn softrnic_causes_a_hint() {
        let mut case = Case::bandwidth();
        case.sides[1].provider = SOFTRNIC.to_owned();
        assert_eq!(case.hints(), [Hint::Softrnic { is_chosen: false }]);
        case.plan.placement.server.device = Some("soft0".to_owned());
        assert_eq!(case.hints(), [Hint::Softrnic { is_chosen: true }]);
        assert!(!case.hints()[0].to_string().contains("-d"), "the user named the device");
        case.sides[1].device = "softroce0".to_owned();
        assert_eq!(case.hints(), [], "the figures are those of a network");
    }

    #[test]
    fn gpu_on_another_node_causes_a_hint() {
        let mut case = Case::bandwidth();
        let gpu = |numa_node| {
            Some(GpuInfo { index: 4, name: "H100".to_owned(), pci_address: "0000:9b:00.0".to_owned(), numa_node })
        };
        for near in [None, case.sides[0].numa_node] {
            case.sides[0].gpu = gpu(near);
            assert_eq!(case.hints(), [], "the GPU's node is unknown, or the GPU is near");
        }
        case.sides[1].gpu = gpu(Some(3));
        let text = case.hints()[0].to_string();
        assert!(
            text.starts_with("On two, GPU 4 (H100, 0000:9b:00.0) is on NUMA node 3, and mlx5_0 on node 0"),
            "{text}"
        );
        assert!(text.contains("Try --remote-device with a device near the GPU"), "{text}");
    }

    #[test]
    fn threads_on_another_node_cause_a_hint() {
        let mut case = Case::bandwidth();
        case.sides[1].thread_nodes = vec![0, 1];
        let [Hint::Far { host, node: 0, thread: 1, option: "--remote-cpu", near, .. }] = &case.hints()[..] else {
            panic!("{:?}", case.hints());
        };
        assert_eq!((host.as_str(), near.as_str()), ("two", "0-7"));
        let text = case.hints()[0].to_string();
        assert!(text.ends_with("Try --remote-cpu 0-7."), "{text}");
        case.sides[1].numa_node = None;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn repeated_client_port_causes_a_hint() {
        let mut case = Case::bandwidth();
        for side in &mut case.sides {
            side.others = vec![PortInfo { port: 2, ..side.clone() }, side.clone()];
        }
        case.plan.workload.rate_limit = Some(1.0);
        let twice = Hint::SamePort { name: "mlx5_0 port 1".to_owned(), times: 2 };
        assert_eq!(case.hints(), std::slice::from_ref(&twice));
        assert_eq!(
            twice.to_string(),
            "mlx5_0 port 1 is named twice, so both parts of the test share its link. Try -d with a different device for each."
        );
        // Several ports may be connected to the same port.
        case.sides[0].others.pop();
        case.sides[1].others[0].port = 1;
        assert_eq!(case.hints(), []);
    }

    #[test]
    fn small_path_mtu_causes_a_hint() {
        let mut case = Case::bandwidth();
        case.path.mtu = 1024;
        case.plan.attributes.mtu = Some(1024);
        assert_eq!(case.hints(), [Hint::MtuAsked(1024)]);
        case.sides[1].mtu = 1024;
        let of = |is_ethernet| Hint::MtuOfPort { host: "two".to_owned(), mtu: 1024, is_ethernet };
        assert_eq!(case.hints(), [of(true)]);
        case.sides[1].link_layer = "InfiniBand".to_owned();
        assert_eq!(case.hints(), [of(false)]);
    }

    #[test]
    fn port_with_the_smallest_mtu_is_named() {
        let mut case = Case::bandwidth();
        case.path.others = vec![crate::endpoint::Path { mtu: 1024, ..case.path.clone() }];
        for (side, host) in case.sides.iter_mut().zip(["three", "four"]) {
            side.others = vec![PortInfo { host: host.to_owned(), ..side.clone() }];
        }
        case.sides[1].others[0].mtu = 1024;
        let hints = case.hints();
        assert!(
            hints.contains(&Hint::MtuOfPort { host: "four".to_owned(), mtu: 1024, is_ethernet: true }),
            "{hints:?}"
        );
    }

    #[test]
    fn threads_far_from_a_port_cause_a_hint() {
        let mut case = Case::bandwidth();
        case.sides[0].others = vec![PortInfo { port: 2, thread_nodes: vec![1], ..case.sides[0].clone() }];
        case.sides[1].others = vec![case.sides[1].clone()];
        case.plan.workload.rate_limit = Some(1.0);
        let hints = case.hints();
        assert!(matches!(&hints[..], [Hint::Far { option: "--cpu", thread: 1, .. }]), "{hints:?}");
    }

    #[test]
    fn small_messages_cause_no_mtu_hint() {
        let mut case = Case::latency();
        case.path.mtu = 1024;
        case.plan.attributes.mtu = Some(1024);
        assert_eq!(case.hints(), []);
    }
}
