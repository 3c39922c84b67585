//! The connection manager: addresses, routes, connections that are rejected or time out.

use super::connection;
use super::model::{Model, Object, argument};
use super::report::Cause;

/// The cause of an event that reports an error.
pub(super) fn event(model: &Model<'_>, trace: usize, arguments: &[(String, String)], time: u64) -> Option<Cause> {
    let event = argument(arguments, "event")?;
    let status: i64 = argument(arguments, "status").and_then(|status| status.parse().ok()).unwrap_or(0);
    let id = argument(arguments, "id").and_then(|name| model.object(trace, name, time));
    let target = id.and_then(|id| id.fact("dst_addr", time)).unwrap_or("the peer").to_owned();
    let errno = i32::try_from(-status).ok().filter(|code| *code > 0).map(crate::names::errno);
    let status = errno.as_ref().map_or_else(|| status.to_string(), Clone::clone);
    let with_status = if status == "0" { String::new() } else { format!(" ({status})") };
    Some(match event {
        "ADDR_ERROR" => Cause::likely(
            format!("{target} is unroutable: no reply for the address, or no RDMA device routes to it{with_status}"),
            "check `ip route get ADDRESS`, `rdma link`, and that the peer is up; hardware does not support 127.0.0.1",
        ),
        "ROUTE_ERROR" => Cause::likely(
            format!("no path to {target}{with_status}: on InfiniBand the subnet manager has none, on RoCE it is 127.0.0.1"),
            "check the subnet manager; use the address of a device",
        ),
        "UNREACHABLE" => Cause::likely(
            format!("{target} does not reply to the connection request{with_status}: UDP port 4791 is filtered by a firewall"),
            "allow UDP port 4791 on both hosts, and check the listener's event loop",
        )
        .or(&["the peer's host is down", "the peer's program takes no events"]),
        "DISCONNECTED" => return connection::disconnected(model, id?, time),
        "REJECTED" => rejected(model, id, &target, &status, time),
        "CONNECT_ERROR" => Cause::likely(
            format!("a local step of the connection failed{with_status}, such as a transition of the queue pair"),
            "read the errno in the status",
        ),
        "DEVICE_REMOVAL" => {
            Cause::certain("the driver was unloaded, or the NIC resets", "drop all objects of the device, list the devices again")
        }
        "MULTICAST_ERROR" => {
            Cause::likely(format!("joining the group failed, or the membership was lost{with_status}"), "check the subnet manager")
        }
        _ => return None,
    })
}

fn rejected(model: &Model<'_>, id: Option<&Object<'_>>, target: &str, status: &str, time: u64) -> Cause {
    let port_space = id.and_then(|id| id.fact("ps", time)).unwrap_or("its");
    match status {
        "8" | "ECONNREFUSED" => {
            let text = format!("wrong port: no listener at {target} in port space {port_space}");
            let listeners: Vec<&str> = model
                .objects
                .iter()
                .filter(|object| object.is("id") && object.is_live(time) && object.fact("backlog", time).is_some())
                .filter_map(|object| object.fact("addr", time))
                .filter(|address| !address.ends_with(":0"))
                .collect();
            let text =
                if listeners.is_empty() { text } else { format!("{text}; there is one at {}", listeners.join(", ")) };
            Cause::certain(text, "start the listener first, and check the port and the port space on both sides")
        }
        "28" => Cause::likely(
            format!("the program at {target} rejected the request, dropped it, or failed to accept it"),
            "read its log and the private data",
        )
        .or(&["it listens on another address"]),
        "10" => Cause::certain(
            "stale connection: the peer still has the queue pair in a connection that has just ended",
            "use another queue pair, or wait for TIMEWAIT_EXIT",
        ),
        "1" | "3" | "6" => Cause::likely("the peer is out of queue pairs or resources", "check the peer's limits"),
        _ => Cause::likely(
            format!("the peer rejected the request with reason {status}"),
            "compare GIDs, MTU and the depths of reads on both sides",
        ),
    }
}

/// The cause of a call of librdmacm that failed.
pub(super) fn call(verb: &str, arguments: &[(String, String)], error: &str) -> Option<Cause> {
    let target = argument(arguments, "dst_addr").or_else(|| argument(arguments, "addr")).unwrap_or("the address");
    Some(match (verb, error) {
        ("rdma_resolve_addr", "ENETUNREACH" | "EHOSTUNREACH" | "ENODEV" | "EADDRNOTAVAIL") => Cause::likely(
            format!("{target} is unroutable: the routing table has no route, or no RDMA device is on it"),
            "check `ip route get ADDRESS`, and `rdma link`",
        ),
        ("rdma_bind_addr", "EADDRINUSE") => Cause::certain(format!("{target} is in use"), "choose another port, or 0"),
        ("rdma_bind_addr", "EADDRNOTAVAIL" | "ENODEV") => Cause::likely(
            format!("no RDMA device has the address {target}, or the port is in use"),
            "check `rdma link`, and choose another port",
        ),
        ("rdma_bind_addr", "EACCES") => {
            Cause::certain("ports below 1024 need CAP_NET_BIND_SERVICE", "choose another port")
        }
        ("rdma_create_event_channel", "ENOENT" | "EPERM" | "ENODEV") => Cause::likely(
            "rdma_ucm is not loaded, or there is no RDMA device",
            "`modprobe rdma_ucm`, and check `rdma link`",
        ),
        (_, "ECONNREFUSED") => Cause::likely(
            format!("wrong port: no listener at {target}"),
            "start the listener first, and check the port",
        ),
        (_, "ETIMEDOUT") => Cause::likely(
            format!("{target} does not reply"),
            "check the firewall for UDP port 4791, and that the peer takes events",
        ),
        _ => Cause::likely(format!("{verb} failed with {error}"), "see the manual page of the function"),
    })
}
