//! Connections: requests that the peer did not acknowledge, or rejected, and queue pairs that were flushed.

use super::memory;
use super::model::{Model, Object, Posted};
use super::report::Cause;

/// The cause of a completion with an error. `None` if it is a part of a normal end.
pub(super) fn failed(
    model: &Model<'_>,
    pair: &Object<'_>,
    posted: Option<&Posted<'_>>,
    status: &str,
    time: u64,
) -> Option<Cause> {
    Some(match status {
        "RETRY_EXC_ERR" => unacknowledged(model, pair, posted, time),
        "RNR_RETRY_EXC_ERR" => not_ready(model, pair, time),
        "REM_ACCESS_ERR" => memory::remote(model, pair, posted, time),
        "LOC_PROT_ERR" | "LOC_ACCESS_ERR" => memory::local(model, pair, posted, time),
        "REM_INV_REQ_ERR" => invalid(model, pair, posted, time),
        "REM_OP_ERR" => rejected_by_memory(model, pair, time),
        "LOC_LEN_ERR" => too_long(pair, posted, time),
        "WR_FLUSH_ERR" => return flushed(model, pair, time),
        "LOC_QP_OP_ERR" => Cause::likely(
            "the device found the request inconsistent: a destroyed address handle, or a wrong list of segments",
            "check the request, and the vendor's error code",
        ),
        "MW_BIND_ERR" => Cause::likely(
            "the region of the memory window lacks MW_BIND, or the range is outside of it",
            "register the region with IBV_ACCESS_MW_BIND, and check the range",
        ),
        "BAD_RESP_ERR" => Cause::likely(
            "the response matches no request: another queue pair may have the same destination",
            "check that no two queue pairs have the same dest_qp",
        ),
        _ => Cause::likely("the device or its driver failed", "read dmesg, and the vendor's error code"),
    })
}

const FABRIC: &str =
    "packets are lost: UDP port 4791 is filtered, a switch has a smaller MTU, or the fabric drops them";
const PEER_ENDED: &str = "the peer's process ended, or its queue pair failed";

/// What to do about a process that left no end record.
const WHY_KILLED: &str = "see why it ended: its exit status, the kernel's log (out of memory), a core file";

/// The peer's process was gone at a time. Without the peer's queue pair, it may be that of any other trace.
fn gone(model: &Model<'_>, pair: &Object<'_>, peer: Option<&Object<'_>>, time: u64) -> Option<Cause> {
    let process = match peer {
        Some(peer) => model.gone(peer.trace, time),
        None => {
            let others = model.killed().map(|(trace, _)| trace).filter(|trace| *trace != pair.trace);
            others.filter_map(|trace| model.gone(trace, time)).find(|process| !process.has_end())
        }
    }?;
    let remedy =
        if process.has_end() { "let the peer end only after its last message was answered" } else { WHY_KILLED };
    Some(Cause::likely(format!("the peer's {process}"), remedy))
}

/// An event that the connection ended, which this side did not cause. `None` if it is a part of a normal end.
pub(super) fn disconnected(model: &Model<'_>, id: &Object<'_>, time: u64) -> Option<Cause> {
    let disconnects = |id: &Object<'_>| id.since("call", "rdma_disconnect");
    if disconnects(id).is_some_and(|call| call <= time) {
        return None;
    }
    let pair = model.object(id.trace, id.fact("qp", time)?, time)?;
    let failed = pair.sends.iter().filter(|posted| posted.failure.is_some()).count();
    let with_failures = match failed {
        0 => String::new(),
        1 => format!("; a request of {} failed with it", pair.name),
        _ => format!("; {failed} requests of {} failed with it", pair.name),
    };
    let peer = model.peer(pair, time);
    let other = peer.and_then(|peer| model.identifiers(peer).last());
    // A call after its own event only answers the end.
    let is_cause = |other: &Object<'_>| {
        let event = other.since("event", "DISCONNECTED").unwrap_or(u64::MAX);
        disconnects(other).is_some_and(|call| call <= event)
    };
    let is_destroyed = |object: Option<&Object<'_>>| object.is_some_and(|object| object.gone.is_some());
    let remedy = "let the peer disconnect only after the last request has completed";
    if other.is_some_and(is_cause) {
        let text = format!("the peer called rdma_disconnect{with_failures}");
        return (failed > 0).then(|| Cause::certain(text, remedy));
    }
    let neither = "neither side called rdma_disconnect";
    if let Some(cause) = gone(model, pair, peer, time) {
        let is_usual = failed == 0 && cause.remedy != WHY_KILLED && is_destroyed(peer);
        return (!is_usual).then(|| Cause { text: format!("{neither}: {}{with_failures}", cause.text), ..cause });
    }
    match other {
        Some(other) if is_destroyed(Some(other)) || is_destroyed(peer) => {
            let text = format!("the peer destroyed its objects without rdma_disconnect{with_failures}");
            (failed > 0).then(|| Cause::certain(text, remedy))
        }
        Some(_) => {
            let text = format!("{neither}: the connection manager ended the connection{with_failures}");
            Some(Cause::likely(text, "check the kernel's log and the port on both hosts"))
        }
        None => {
            let text = format!("the peer disconnected, or its process ended{with_failures}");
            (failed > 0).then(|| Cause::likely(text, "trace the peer too, and explain both traces together"))
        }
    }
}

/// The program sends from a GID that it never queried, but queried others: the peer may have one of these.
fn unqueried(model: &Model<'_>, pair: &Object<'_>, time: u64) -> Option<Cause> {
    let index = pair.fact("sgid_index", time)?;
    let queried = model.queried(pair, time);
    if queried.is_empty() || queried.iter().any(|(known, _)| *known == index) {
        return None;
    }
    let mut indices: Vec<&str> = queried.iter().map(|(known, _)| *known).collect();
    indices.sort_unstable();
    indices.dedup();
    let used = pair.fact("sgid", time).unwrap_or("unknown");
    Some(Cause::likely(
        format!(
            "wrong GID index: {} sends from sgid_index {index}, which is {used}, and the program queried the GID of index {}",
            pair.name,
            indices.join(", ")
        ),
        "give the peer the GID of the index that the queue pair uses",
    ))
}

fn unacknowledged(model: &Model<'_>, pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let Some(peer) = model.peer(pair, time) else {
        if let Some(cause) = gone(model, pair, None, time) {
            return cause.or(&[FABRIC]);
        }
        let had_success = pair.sends.iter().any(|sent| {
            sent.done.is_some_and(|done| done < time) && posted.is_none_or(|posted| sent.time < posted.time)
        });
        let remedy = "trace the peer too, and explain both traces together";
        let text = "the peer did not acknowledge; without its trace the causes cannot be distinguished";
        if let Some(cause) = unqueried(model, pair, time).filter(|_| !had_success) {
            return cause.or(&["the peer's queue pair is not in RTR", PEER_ENDED, FABRIC]);
        }
        return if had_success {
            Cause::likely(text, remedy).or(&[PEER_ENDED, FABRIC])
        } else {
            Cause::likely(text, remedy).or(&[
                "the peer's queue pair is not in RTR",
                "GID index, dest_qp, PSN or path MTU differ between the two sides",
                PEER_ENDED,
                FABRIC,
            ])
        };
    };
    let known = mismatch(model, (pair, peer), posted, time).or_else(|| gone(model, pair, Some(peer), time));
    known.unwrap_or_else(|| {
        let agree = format!("{} and its peer {} agree on numbers, GIDs, PSNs and MTU", pair.name, peer.name);
        // Of softrnic's devices, only those for RoCEv2 send packets that a firewall sees.
        let connects_one_host = |device: &str| device.starts_with("soft") && !device.starts_with("softroce");
        if pair.fact("context", time).is_some_and(connects_one_host) {
            Cause::likely(format!("{agree}: {PEER_ENDED}, or a port is down"), "see why the peer ended")
        } else {
            Cause::likely(
                format!("{agree}: {FABRIC}"),
                "check the firewall for UDP port 4791, and ping the peer with packets of the MTU's size",
            )
            .or(&[PEER_ENDED])
        }
    })
}

/// What prevents messages of a queue pair from reaching its peer.
fn mismatch(
    model: &Model<'_>,
    (pair, peer): (&Object<'_>, &Object<'_>),
    posted: Option<&Posted<'_>>,
    time: u64,
) -> Option<Cause> {
    let (here, there) = (&pair.name, &peer.name);
    if peer.gone.is_some_and(|gone| gone <= time) {
        return Some(Cause::certain(
            format!("the peer had destroyed its queue pair {there}"),
            "destroy a queue pair only after the peer's requests have completed",
        ));
    }
    match peer.state(time) {
        state @ ("RESET" | "INIT") => {
            return Some(Cause::certain(
                format!("the peer's queue pair {there} is in {state}: it receives from RTR on"),
                "bring both queue pairs to RTR before one of them sends",
            ));
        }
        "ERR" => {
            return Some(Cause::certain(
                format!("the peer's queue pair {there} is in ERR"),
                "find what moved it there, and connect both again",
            ));
        }
        _ => {}
    }
    if let Some(other) = peer.fact("dest_qp", time).filter(|_| peer.number("dest_qp", time) != Some(pair.id())) {
        return Some(Cause::certain(
            format!("{here} sends to {there}, which is connected to qp {other}"),
            "exchange the queue pair numbers again",
        ));
    }
    for (from, to, (gid, known)) in [(pair, peer, ("sgid", "dgid")), (peer, pair, ("sgid", "dgid"))] {
        if let (Some(used), Some(expected)) = (from.fact(gid, time), to.fact(known, time))
            && used != expected
        {
            let index = from.fact("sgid_index", time).unwrap_or("?");
            return Some(Cause::certain(
                format!(
                    "wrong GID index: {} sends from sgid_index {index}, which is {used}, and {} expects {expected}",
                    from.name, to.name
                ),
                match model.queried(from, time).into_iter().rev().find(|(_, gid)| *gid == expected) {
                    Some((right, _)) => format!("use sgid_index {right}: the program queried {expected} there"),
                    None => format!("use the GID index of {expected}, or give the peer the GID of index {index}"),
                },
            ));
        }
    }
    let psn = (pair.number("sq_psn", time), peer.number("rq_psn", time));
    if let (Some(sent), Some(expected)) = psn
        && sent != expected
    {
        return Some(Cause::certain(
            format!("PSN mismatch: {here} starts at sq_psn {sent}, and {there} expects rq_psn {expected}"),
            "set rq_psn to the sq_psn of the peer",
        ));
    }
    mtu_mismatch(pair, peer, posted, time)
}

fn mtu_mismatch(pair: &Object<'_>, peer: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Option<Cause> {
    let (ours, theirs) = (pair.number("path_mtu", time)?, peer.number("path_mtu", time)?);
    let fits = posted.is_some_and(|posted| posted.request.bytes <= ours.min(theirs));
    (ours != theirs && !fits).then(|| {
        Cause::certain(
            format!("MTU mismatch: {} has path_mtu {ours}, and {} has {theirs}", pair.name, peer.name),
            "set the smaller path MTU on both queue pairs",
        )
    })
}

fn not_ready(model: &Model<'_>, pair: &Object<'_>, time: u64) -> Cause {
    let retries = pair.fact("rnr_retry", time).map_or_else(String::new, |count| format!(" (rnr_retry {count})"));
    let remedy = "post receives before the peer sends, and keep enough of them posted";
    let Some(peer) = model.peer(pair, time) else {
        return Cause::certain(format!("the peer had no receive posted{retries}"), remedy)
            .or(&["its shared receive queue was empty, if it has one"]);
    };
    let queue = model.receives(peer, time);
    let open = queue.receives.iter().filter(|posted| posted.is_open(time)).count();
    let posted = queue.receives.iter().filter(|posted| posted.time <= time && !posted.is_refused).count();
    let count = format!("{posted} receives were posted until then, {open} of them are left");
    if queue.is("srq") {
        let text =
            format!("the shared receive queue {} of the peer's {} was empty: {count}{retries}", queue.name, peer.name);
        return Cause::certain(text, remedy);
    }
    Cause::certain(format!("the peer's queue pair {} had no receive posted: {count}{retries}", peer.name), remedy)
}

fn invalid(model: &Model<'_>, pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let all = Cause::likely("the peer found the request invalid", "trace the peer too").or(&[
        "the message is longer than the peer's receive",
        "more reads and atomics in flight than the peer's max_dest_rd_atomic",
        "an atomic on an address that is not a multiple of 8",
        "the path MTU differs between the two sides",
    ]);
    let Some(posted) = posted else { return all };
    let request = posted.request;
    if request.opcode.starts_with("ATOMIC") && !request.remote.is_multiple_of(8) {
        let text = format!("the atomic's address {:#x} is not a multiple of 8", request.remote);
        return Cause::certain(text, "align the target of atomics to 8 bytes");
    }
    let Some(peer) = model.peer(pair, time) else { return all };
    if let Some(cause) = memory::missing_right(peer, request, time) {
        return cause;
    }
    let limits = (pair.number("max_rd_atomic", time), peer.number("max_dest_rd_atomic", time));
    if let (Some(ours), Some(theirs)) = limits
        && ours > theirs
        && (request.opcode == "RDMA_READ" || request.opcode.starts_with("ATOMIC"))
    {
        let text =
            format!("max_rd_atomic {ours} of {} exceeds max_dest_rd_atomic {theirs} of {}", pair.name, peer.name);
        return Cause::certain(text, "set max_rd_atomic to at most the peer's max_dest_rd_atomic");
    }
    let receives = &model.receives(peer, time).receives;
    let is_send = request.opcode.starts_with("SEND");
    let short = receives.iter().find(|receive| {
        let is_next = receive.done.is_none_or(|done| done >= posted.time) && !receive.is_refused;
        is_send && is_next && receive.request.bytes < request.bytes
    });
    if let Some(receive) = short {
        let text = format!(
            "the message of {} bytes is longer than the peer's receive of {} bytes (wr_id {})",
            request.bytes, receive.request.bytes, receive.request.wr_id
        );
        return Cause::certain(text, "post receives of the longest message's size");
    }
    mtu_mismatch(pair, peer, Some(posted), time).unwrap_or(all)
}

/// The peer could not place a permitted message: its receive failed.
fn rejected_by_memory(model: &Model<'_>, pair: &Object<'_>, time: u64) -> Cause {
    let inner = model.peer(pair, time).and_then(|peer| {
        let (at, posted) = model.failed_receive(peer, "LOC_PROT_ERR")?;
        Some(memory::local(model, peer, Some(posted), at))
    });
    match inner {
        Some(cause) => Cause { text: format!("the peer's receive failed: {}", cause.text), ..cause },
        None => Cause::likely(
            "the peer could not execute the request: usually the memory of its receive is wrong",
            "look for LOC_PROT_ERR in the peer's completions",
        ),
    }
}

fn too_long(pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let Some(posted) = posted.filter(|posted| posted.request.opcode == "RECV") else {
        return Cause::likely(
            "the message exceeds the port's maximum or, of a datagram, the MTU",
            "send shorter messages",
        );
    };
    let header = if pair.fact("type", time) == Some("UD") { "; a datagram has 40 bytes before its data" } else { "" };
    Cause::certain(
        format!("the message is longer than this receive of {} bytes{header}", posted.request.bytes),
        "post receives of the longest message's size",
    )
}

/// A queue pair was flushed, and no request of it had failed.
fn flushed(model: &Model<'_>, pair: &Object<'_>, time: u64) -> Option<Cause> {
    let was_moved = pair.state(time.saturating_sub(1)) == "ERR";
    if was_moved || pair.gone.is_some_and(|gone| gone <= time) || model.is_disconnected(pair) {
        return None;
    }
    let Some(peer) = model.peer(pair, time) else {
        return Some(
            Cause::likely(
                "the queue pair failed, and no completion in the trace has the cause",
                "poll all completions and asynchronous events, and trace the peer too",
            )
            .or(&["the peer disconnected or ended", "a completion queue overran"]),
        );
    };
    let text =
        format!("the queue pair failed, and neither it nor its peer {} has a completion with the cause", peer.name);
    Some(Cause::likely(text, "poll all completions and asynchronous events"))
}
