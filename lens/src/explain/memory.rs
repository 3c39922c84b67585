//! Memory: keys, ranges, access rights, and registrations that fail.

use super::model::{Model, Object, Posted, number};
use super::report::Cause;
use crate::record::Request;

/// A request accessed memory of the peer, which did not permit it.
pub(super) fn remote(model: &Model<'_>, pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let (Some(posted), Some(peer)) = (posted, model.peer(pair, time)) else {
        return Cause::likely(
            "the peer did not permit the access; without its trace the causes cannot be distinguished",
            "exchange keys and addresses again; trace the peer too, and explain both traces together",
        )
        .or(&[
            "the rkey is wrong, or its region was deregistered",
            "the range is outside the region",
            "the region, or the peer's queue pair, lacks the access right",
        ]);
    };
    let request = posted.request;
    let regions = || {
        let is_of_peer =
            move |region: &&Object<'_>| region.trace == peer.trace && region.made <= time && region.is("mr");
        model.objects.iter().rev().filter(is_of_peer)
    };
    let key = u64::from(request.key);
    let with_key = || regions().filter(|region| region.number("rkey", time) == Some(key));
    let Some(region) = with_key().find(|region| region.is_live(time)) else {
        if let Some(region) = with_key().next() {
            let text = format!("rkey {key:#x} has expired: the peer deregistered {} before", region.name);
            return Cause::certain(
                text,
                "deregister memory only after the peer's last access, and exchange keys again",
            );
        }
        let target =
            regions().find(|region| region.is_live(time) && is_inside(region, request.remote, request.bytes, time));
        let text = format!("wrong rkey: {key:#x} is the key of no region of the peer");
        let remedy = "send the rkey of the region to the peer, and exchange it again after a restart";
        return match target.and_then(|region| Some((region, region.fact("rkey", time)?))) {
            Some((region, known)) => Cause::certain(
                format!("{text}; the region at {:#x} is {}, with rkey {known}", request.remote, region.name),
                remedy,
            ),
            None => Cause::certain(text, remedy),
        };
    };
    if let Some(text) = range(region, request.remote, request.bytes, time) {
        return Cause::certain(text, "check the offset and the length against the peer's region");
    }
    if let Some(cause) = missing_right(region, request, time).or_else(|| missing_right(peer, request, time)) {
        return cause;
    }
    if let Some(text) = other_domain(region, peer, time) {
        return Cause::certain(text, "use regions and queue pairs of one protection domain");
    }
    Cause::likely(
        format!("the peer's {} permits the access in the trace", region.name),
        "look for a memory window, or for keys that were invalidated",
    )
}

/// The access right that a region or a queue pair of the peer lacks for a request.
pub(super) fn missing_right(object: &Object<'_>, request: &Request, time: u64) -> Option<Cause> {
    let right = match request.opcode.as_str() {
        "RDMA_READ" => "REMOTE_READ",
        "ATOMIC_CMP_AND_SWP" | "ATOMIC_FETCH_AND_ADD" => "REMOTE_ATOMIC",
        "RDMA_WRITE" | "RDMA_WRITE_WITH_IMM" | "ATOMIC_WRITE" => "REMOTE_WRITE",
        _ => return None,
    };
    if object.allows(right, time) != Some(false) {
        return None;
    }
    let access = object.fact("access", time).unwrap_or("0");
    let (kind, remedy) = if object.is("qp") {
        ("queue pair", format!("add IBV_ACCESS_{right} to qp_access_flags in the transition to INIT"))
    } else {
        ("memory region", format!("register the region with IBV_ACCESS_{right}"))
    };
    Some(Cause::certain(
        format!("the peer's {kind} {} lacks {right}: its access flags are {access}", object.name),
        remedy,
    ))
}

/// A request accessed memory of its own side, which was not permitted.
pub(super) fn local(model: &Model<'_>, pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let unknown = Cause::likely(
        "a local key or range of the request is wrong, or the region lacks LOCAL_WRITE",
        "check the lkey, address and length of each segment",
    );
    let Some(posted) = posted else { return unknown };
    let request = posted.request;
    let name = format!("mr {:#x}", request.lkey);
    let Some(region) = model.object(pair.trace, &name, time) else {
        let text = format!("wrong lkey: {:#x} is the key of no memory region of this process", request.lkey);
        return Cause::certain(text, "use the lkey of the region that contains the data");
    };
    if let Some(gone) = region.gone.filter(|gone| *gone <= time) {
        let when = if gone < posted.time { "before the request was posted" } else { "before its completion" };
        return Cause::certain(
            format!("the memory region {} was deregistered {when}", region.name),
            "deregister memory only after the completions of the requests that use it",
        );
    }
    if let Some(text) = range(region, request.address, request.bytes, time).filter(|_| request.segments == 1) {
        return Cause::certain(text, "check the address and the length of the segment");
    }
    let writes = request.opcode == "RECV" || request.opcode == "RDMA_READ" || request.opcode.starts_with("ATOMIC_");
    if writes && region.allows("LOCAL_WRITE", time) == Some(false) {
        let text = format!("{} writes to local memory, and {} lacks LOCAL_WRITE", request.opcode, region.name);
        return Cause::certain(text, "register the region with IBV_ACCESS_LOCAL_WRITE");
    }
    if let Some(text) = other_domain(region, pair, time) {
        return Cause::certain(text, "use regions and queue pairs of one protection domain");
    }
    if request.segments > 1 {
        let text = format!(
            "one of the segments 2 to {} is wrong: the first is right, and the trace has no others",
            request.segments
        );
        return Cause::likely(text, "check the lkey, address and length of each segment");
    }
    unknown
}

fn start(region: &Object<'_>, time: u64) -> Option<u64> {
    if region.allows("ZERO_BASED", time) == Some(true) {
        return Some(0);
    }
    region.number("iova", time).or_else(|| region.number("addr", time))
}

fn is_inside(region: &Object<'_>, address: u64, bytes: u64, time: u64) -> bool {
    let (Some(start), Some(length)) = (start(region, time), region.number("length", time)) else { return false };
    address >= start && address.saturating_add(bytes) <= start.saturating_add(length)
}

/// What is wrong with a range, if it is known.
fn range(region: &Object<'_>, address: u64, bytes: u64, time: u64) -> Option<String> {
    let (start, length) = (start(region, time)?, region.number("length", time)?);
    (!is_inside(region, address, bytes, time)).then(|| {
        format!("{bytes} bytes at {address:#x} are outside of {}, which has {length} bytes at {start:#x}", region.name)
    })
}

fn other_domain(region: &Object<'_>, pair: &Object<'_>, time: u64) -> Option<String> {
    let (ours, theirs) = (region.fact("pd", time)?, pair.fact("pd", time).filter(|pd| pd.starts_with("pd "))?);
    (ours != theirs).then(|| format!("{} belongs to {ours}, and {} to {theirs}", region.name, pair.name))
}

/// A registration failed.
pub(super) fn registration(
    model: &Model<'_>,
    (trace, time): (usize, u64),
    arguments: &[(String, String)],
    error: &str,
) -> Option<Cause> {
    let value = |name| super::model::argument(arguments, name);
    // A region that changes leaves its range.
    let changed = value("mr");
    let is_registered = |object: &&Object<'_>| {
        object.trace == trace && object.is("mr") && object.is_live(time) && Some(&*object.name) != changed
    };
    let registered: u64 =
        model.objects.iter().filter(is_registered).filter_map(|region| region.number("length", time)).sum();
    let length = value("length").and_then(number).unwrap_or(0);
    let memlock = "raise the limit of locked memory: `ulimit -l unlimited`, /etc/security/limits.conf, LimitMEMLOCK= of a \
                   service, or CAP_IPC_LOCK in a container";
    Some(match error {
        "ENOMEM" => Cause::likely(
            format!(
                "the limit of locked memory (`ulimit -l`): {length} bytes more than the {registered} that the process has \
                 registered"
            ),
            memlock,
        )
        .or(&["no keys or no memory are left"]),
        "EPERM" => Cause::likely("the limit of locked memory (`ulimit -l`) is 0", memlock),
        "EFAULT" => Cause::likely(
            "the range is not mapped, or is read-only while the flags include write access",
            "check the range; register read-only memory without write access",
        ),
        "EINVAL" if length == 0 => Cause::certain("the length is 0", "register at least one byte"),
        "EINVAL" => {
            let access = value("access").unwrap_or("0");
            let writes = access.contains("REMOTE_WRITE") || access.contains("REMOTE_ATOMIC");
            if writes && !access.contains("LOCAL_WRITE") {
                Cause::certain(format!("access {access} lacks LOCAL_WRITE"), "add IBV_ACCESS_LOCAL_WRITE")
            } else {
                Cause::likely(format!("the device rejects the range or the access flags {access}"), "check both")
            }
        }
        _ => return None,
    })
}
