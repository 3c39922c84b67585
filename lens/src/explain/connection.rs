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

fn unacknowledged(model: &Model<'_>, pair: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Cause {
    let Some(peer) = model.peer(pair, time) else {
        let had_success = pair.sends.iter().any(|sent| {
            sent.done.is_some_and(|done| done < time) && posted.is_none_or(|posted| sent.time < posted.time)
        });
        let remedy = "trace the peer too, and explain both traces together";
        let text = "the peer did not acknowledge; without its trace the causes cannot be distinguished";
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
    mismatch(pair, peer, posted, time).unwrap_or_else(|| {
        let agree = format!("{} and its peer {} agree on numbers, GIDs, PSNs and MTU", pair.name, peer.name);
        // softrnic sends no packets that a firewall sees.
        if pair.fact("context", time).is_some_and(|device| device.starts_with("soft")) {
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
fn mismatch(pair: &Object<'_>, peer: &Object<'_>, posted: Option<&Posted<'_>>, time: u64) -> Option<Cause> {
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
                format!("use the GID index of {expected}, or give the peer the GID of index {index}"),
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
