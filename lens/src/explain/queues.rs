//! Queues: requests that the device refused, queues that overran, asynchronous events, and hints on requests.

use super::model::{Model, Object, Posted, argument};
use super::report::Cause;

/// The device refused the request `posted`.
pub(super) fn refused(
    pair: &Object<'_>,
    posted: Option<&Posted<'_>>,
    is_receive: bool,
    (error, time): (&str, u64),
) -> Option<Cause> {
    let queue = if is_receive { &pair.receives } else { &pair.sends };
    let (sge, depth) = if is_receive { ("max_recv_sge", "max_recv_wr") } else { ("max_send_sge", "max_send_wr") };
    if let Some(request) = posted.map(|posted| posted.request) {
        let is_inline = request.flags.contains("INLINE");
        if let Some(limit) = pair.number(sge, time).filter(|limit| u64::from(request.segments) > *limit && !is_inline) {
            return Some(Cause::certain(
                format!(
                    "too many segments: the request has {}, and {} was created with {sge} {limit}",
                    request.segments, pair.name
                ),
                format!("create the queue pair with a larger {sge}"),
            ));
        }
        if let Some(limit) = pair.number("max_inline_data", time).filter(|limit| is_inline && request.bytes > *limit) {
            return Some(Cause::certain(
                format!(
                    "too much inline data: the request has {} bytes, and {} was created with max_inline_data {limit}",
                    request.bytes, pair.name
                ),
                "create the queue pair with a larger max_inline_data, or send without IBV_SEND_INLINE",
            ));
        }
    }
    let state = pair.state(time);
    if matches!(state, "RESET" | "INIT" | "RTR") && !(is_receive && state != "RESET") {
        return Some(Cause::certain(
            format!("{} is in {state}", pair.name),
            "sends need RTS and receives need INIT: connect before posting",
        ));
    }
    let limit = pair.number(depth, time)?;
    let open = queue.iter().filter(|posted| posted.is_open(time)).count() as u64;
    let is_full = matches!(error, "ENOMEM" | "EAGAIN" | "ENOSPC" | "ENOBUFS") && (posted.is_none() || open >= limit);
    if is_full {
        // A program may post until the queue is full, poll, and go on.
        let goes_on = queue.iter().any(|posted| posted.time > time && !posted.is_refused);
        return (!goes_on).then(|| {
            Cause::likely(
                format!(
                    "the queue of {} is full: {open} requests are in flight, and it has {depth} {limit}",
                    pair.name
                ),
                "poll completions before posting; signal at least one request per queue length",
            )
        });
    }
    Some(match error {
        "EOPNOTSUPP" | "ENOSYS" => Cause::likely(
            "the queue pair was created without this operation",
            "name the operation when the queue pair is created",
        ),
        "ENOMEM" | "EAGAIN" => Cause::likely("the device is out of resources", "poll completions, then post again"),
        _ => Cause::likely(
            "the driver found the request invalid",
            "check operation, flags, keys and the address handle of the request",
        ),
    })
}

/// The queue pairs that use a completion queue.
pub(super) fn users<'m, 'a>(model: &'m Model<'a>, cq: &Object<'_>, time: u64) -> Vec<&'m Object<'a>> {
    let (trace, name) = (cq.trace, cq.name.clone());
    let uses = |pair: &&Object<'_>| {
        let is_user = ["send_cq", "recv_cq"].iter().any(|queue| pair.fact(queue, time) == Some(&*name));
        pair.trace == trace && pair.is("qp") && pair.made <= time && is_user
    };
    model.objects.iter().filter(uses).collect()
}

/// Whether a completion queue has fewer entries than its queue pairs have requests.
pub(super) fn overrun(model: &Model<'_>, cq: &Object<'_>, time: u64) -> Option<Cause> {
    let entries = cq.number("cqe", time)?;
    let pairs = users(model, cq, time);
    let open = |queue: &[Posted<'_>]| queue.iter().filter(|posted| posted.is_open(time)).count() as u64;
    let requests: u64 = pairs
        .iter()
        .map(|pair| {
            let sends = if pair.fact("send_cq", time) == Some(&*cq.name) { open(&pair.sends) } else { 0 };
            let receives = &model.receives(pair, time).receives;
            sends + if pair.fact("recv_cq", time) == Some(&*cq.name) { open(receives) } else { 0 }
        })
        .sum();
    (requests > entries).then(|| {
        Cause::certain(
            format!(
                "completion queue {} is too small and overran: it was created with {entries} entries, and {requests} requests \
                 of its queue pairs had no polled completion",
                cq.name
            ),
            "create it for all requests that may be in flight on its queue pairs, and poll it often",
        )
    })
}

/// The cause of an asynchronous event that reports an error.
pub(super) fn event(model: &Model<'_>, trace: usize, arguments: &[(String, String)], time: u64) -> Option<Cause> {
    let event = argument(arguments, "event")?;
    let pair = argument(arguments, "qp").and_then(|name| model.object(trace, name, time));
    let cq = argument(arguments, "cq").and_then(|name| model.object(trace, name, time));
    Some(match event {
        "CQ_ERR" => cq.and_then(|cq| overrun(model, cq, time)).unwrap_or_else(|| {
            Cause::likely(
                "the completion queue overran",
                "create it for all requests that may be in flight, and poll it often",
            )
        }),
        "QP_FATAL" => {
            let queues = ["send_cq", "recv_cq"].into_iter().filter_map(|name| pair?.fact(name, time));
            let overran =
                queues.filter_map(|name| model.object(trace, name, time)).find_map(|cq| overrun(model, cq, time));
            overran.unwrap_or_else(|| {
                Cause::likely(
                    "an error that no completion could report, such as an overrun of the completion queue",
                    "reset or destroy the queue pair",
                )
            })
        }
        "QP_ACCESS_ERR" => Cause::likely(
            "the peer requested memory without the access right",
            "check the key and the range that the peer was given, and the access flags of region and queue pair",
        ),
        "QP_REQ_ERR" => Cause::likely("the peer sent an invalid request", "trace the peer too"),
        "DEVICE_FATAL" => {
            Cause::likely("the firmware failed, or the device was removed", "read dmesg; list the devices again")
        }
        "PORT_ERR" => Cause::certain("the link of the port went down", "check cable, switch and interface"),
        "PATH_MIG_ERR" => Cause::certain("the migration to the alternate path failed", "check the alternate path"),
        "SRQ_ERR" | "WQ_FATAL" => Cause::certain("the receive queue has failed", "destroy it with its queue pairs"),
        _ => return None,
    })
}

/// A datagram whose Q_Key is not that of its target, which drops it silently.
pub(super) fn dropped_datagram(model: &Model<'_>, pair: &Object<'_>, posted: &Posted<'_>) -> Option<Cause> {
    let (request, time) = (posted.request, posted.time);
    if posted.is_refused || pair.fact("type", time) != Some("UD") || !request.opcode.starts_with("SEND") {
        return None;
    }
    // The highest bit selects the Q_Key of the sender.
    let key = if request.key >> 31 == 1 { pair.number("qkey", time)? } else { request.key.into() };
    let is_target = |target: &&Object<'_>| {
        let is_datagram = target.fact("type", time) == Some("UD") && target.fact("qkey", time).is_some();
        target.is("qp") && target.id() == request.remote && target.is_live(time) && is_datagram
    };
    let targets: Vec<&Object<'_>> = model.objects.iter().filter(is_target).collect();
    let target = targets.first()?;
    let is_wrong = targets.iter().all(|target| target.number("qkey", time) != Some(key));
    is_wrong.then(|| {
        let known = target.fact("qkey", time).unwrap_or_default();
        Cause::certain(
            format!(
                "Q_Key mismatch: datagrams to {} have {key:#x}, and it has {known}; it drops them silently",
                target.name
            ),
            "send with the Q_Key of the target's queue pair",
        )
    })
}

/// Immediate data with the bytes of a small number in the order of a little-endian host.
pub(super) fn swapped_immediate<'s, 'a>(pair: &'s Object<'a>) -> Option<(&'s Posted<'a>, Cause)> {
    let posted: Vec<&Posted<'a>> =
        pair.sends.iter().filter(|posted| posted.request.opcode.ends_with("_WITH_IMM") && !posted.is_refused).collect();
    let is_small = |value: u32| (1..1 << 16).contains(&value);
    let is_suspicious = |posted: &&Posted<'_>| {
        let wire = u32::from_be(posted.request.extra);
        wire == 0 || is_small(wire.swap_bytes()) && !is_small(wire)
    };
    let first = posted.iter().find(|posted| posted.request.extra != 0).filter(|_| posted.iter().all(is_suspicious))?;
    let wire = u32::from_be(first.request.extra);
    let cause = Cause::hint(
        format!(
            "immediate data {wire:#x} looks like {} in the byte order of the host: imm_data is big-endian",
            wire.swap_bytes()
        ),
        "store htonl(value) in imm_data, and read ntohl(imm_data), if the peer expects the number",
    );
    Some((first, cause))
}
