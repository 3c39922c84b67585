//! Calls that failed.

use super::model::{Model, Moment, argument, destroys, number};
use super::report::Cause;
use super::{manager, memory};
use crate::record::What;

/// The cause of a call that failed with `error`. `None` if programs expect the failure.
pub(super) fn failed(
    model: &Model<'_>,
    moment: Moment<'_>,
    verb: &str,
    arguments: &[(String, String)],
    error: &str,
) -> Option<Cause> {
    let (trace, time) = (moment.trace, moment.time);
    if is_expected(verb, error) || is_repeated(model, moment, verb) {
        return None;
    }
    if destroys(verb) {
        return destruction(model, moment, verb, arguments, error);
    }
    if verb.starts_with("rdma_") {
        return manager::call(verb, arguments, error);
    }
    Some(match verb {
        _ if verb.contains("_reg_") || verb == "ibv_rereg_mr" => {
            return memory::registration(model, (trace, time), arguments, error);
        }
        "ibv_fork_init" => {
            Cause::certain("a device was opened before", "call ibv_fork_init at the start of the program")
        }
        "ibv_open_device" => match error {
            "EACCES" | "EPERM" => Cause::certain(
                "no permission to read and write /dev/infiniband/uverbsN",
                "fix the permissions of the file; in a container, the device cgroup",
            ),
            "ENOENT" => Cause::certain("the device file does not exist", "pass it into the container (--device)"),
            "EMFILE" => Cause::certain("too many open files", "raise `ulimit -n`"),
            _ => Cause::likely("the device is being removed or reset", "wait, then list the devices again"),
        },
        "ibv_get_device_list" => {
            Cause::likely("the kernel has no RDMA, or ib_uverbs is not loaded", "`modprobe ib_uverbs`")
        }
        "ibv_modify_qp" => transition(arguments, error),
        _ if verb.starts_with("ibv_create_cq") => Cause::likely(
            format!(
                "the completion queue of {} entries exceeds a limit of the device, or of locked memory (`ulimit -l`)",
                argument(arguments, "cqe").unwrap_or("?")
            ),
            "compare with max_cqe and the number of completion vectors",
        ),
        _ if verb.starts_with("ibv_create_qp") => Cause::likely(
            "requests, segments or inline data exceed the device's limits, or no queue pairs or locked memory are left",
            "compare with max_qp_wr and max_sge of the device; count queue pairs with `rdma resource show`",
        ),
        _ => Cause::likely(format!("{verb} failed with {error}"), "see the manual page of the function"),
    })
}

/// Failures by which programs probe a device, or wait without blocking.
fn is_expected(verb: &str, error: &str) -> bool {
    let waits = matches!(error, "EAGAIN" | "EINTR" | "EINPROGRESS" | "ECANCELED") && !verb.starts_with("ibv_reg");
    let probes = matches!(error, "EOPNOTSUPP" | "ENOSYS" | "EPROTONOSUPPORT" | "ENODATA" | "ENOTTY")
        && verb != "ibv_get_device_list";
    waits || probes || verb.contains("_query_") || verb.contains("qp_to_qp_ex") || verb.contains("advise")
}

/// Whether the thread repeated the call at once, with success: a program that tries smaller queues or fewer flags, or that
/// destroys an object later.
fn is_repeated(model: &Model<'_>, moment: Moment<'_>, verb: &str) -> bool {
    let family = |verb: &str| verb.trim_end_matches("2").trim_end_matches("_iova").trim_end_matches("_ex").to_owned();
    let is_creation = verb.starts_with("ibv_create_") || verb.starts_with("ibv_reg_");
    let name = |arguments: &[(String, String)]| match is_creation {
        true => argument(arguments, "addr").map(str::to_owned),
        false => arguments.first().map(|(_, value)| value.clone()),
    };
    let What::Call { arguments: failed, .. } = &moment.record.what else { return false };
    let next =
        model.moments.iter().filter(|next| next.trace == moment.trace && next.record.thread == moment.record.thread);
    let mut later = next.filter(|next| next.record.at > moment.record.at).filter_map(|next| match &next.record.what {
        What::Call { verb: other, arguments, error, .. } if family(other) == family(verb) => Some((arguments, error)),
        _ => None,
    });
    is_creation && later.next().is_some_and(|(arguments, error)| error.is_none() && name(arguments) == name(failed))
}

fn destruction(
    model: &Model<'_>,
    moment: Moment<'_>,
    verb: &str,
    arguments: &[(String, String)],
    error: &str,
) -> Option<Cause> {
    let (trace, time) = (moment.trace, moment.time);
    let (kind, name) = arguments.first()?;
    let object = model.object(trace, name, time);
    if object.is_some_and(|object| !object.is_live(time)) {
        let text = format!("double destroy: {verb} of {name}, which was destroyed before");
        return Some(Cause::certain(
            text,
            "destroy each object once: another destruction of a pointer is undefined behaviour",
        ));
    }
    if error == "EBUSY" {
        let uses = |user: &&super::model::Object<'_>| {
            let fields: &[&str] = match kind.as_str() {
                "cq" => &["send_cq", "recv_cq"],
                "context" => &["context"],
                other => &[other],
            };
            user.trace == trace && user.is_live(time) && fields.iter().any(|field| user.fact(field, time) == Some(name))
        };
        let users: Vec<&str> = model.objects.iter().filter(uses).map(|user| &*user.name).collect();
        let by = if users.is_empty() { "another object".to_owned() } else { users.join(", ") };
        let text = format!("{name} is still in use by {by}");
        return Some(Cause::certain(
            text,
            "destroy the users first, and acknowledge their events; then destroy it once",
        ));
    }
    Some(Cause::likely(
        format!("{name} is no live object, such as after a double destroy ({error})"),
        "destroy each object once",
    ))
}

/// The attributes that a transition needs beside the state.
const NEEDED: [(&str, &str, &[&str]); 8] = [
    ("RC", "RESET→INIT", &["pkey_index", "port", "access"]),
    ("UC", "RESET→INIT", &["pkey_index", "port", "access"]),
    ("UD", "RESET→INIT", &["pkey_index", "port", "qkey"]),
    ("RC", "INIT→RTR", &["path_mtu", "dest_qp", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"]),
    ("UC", "INIT→RTR", &["path_mtu", "dest_qp", "rq_psn"]),
    ("RC", "RTR→RTS", &["sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"]),
    ("UC", "RTR→RTS", &["sq_psn"]),
    ("UD", "RTR→RTS", &["sq_psn"]),
];
const STEPS: [&str; 9] =
    ["RESET→INIT", "INIT→INIT", "INIT→RTR", "RTR→RTS", "RTS→RTS", "RTS→SQD", "SQD→RTS", "SQD→SQD", "SQE→RTS"];

fn transition(arguments: &[(String, String)], error: &str) -> Cause {
    let step = argument(arguments, "state").unwrap_or_default();
    match error {
        "ETIMEDOUT" => Cause::likely(
            "no reply to ARP or neighbour discovery for the peer's GID: it is down, or sgid_index belongs to another interface",
            "ping the peer's address through the interface of the GID index",
        ),
        "ENETUNREACH" | "EHOSTUNREACH" => {
            Cause::certain("no route between the two GIDs: IPv4 and IPv6, or RoCE v1 and v2", "use GIDs of one type")
        }
        _ => invalid_transition(arguments, step, error),
    }
}

fn invalid_transition(arguments: &[(String, String)], step: &str, error: &str) -> Cause {
    let ends = step.ends_with("→RESET") || step.ends_with("→ERR");
    if !step.is_empty() && !ends && !STEPS.contains(&step) {
        return Cause::certain(
            format!("verbs have no transition {step}"),
            "go through RESET, INIT, RTR and RTS in order",
        );
    }
    // The service is not among the arguments, so only what each service needs counts.
    let missing = NEEDED.iter().filter(|(_, known, _)| *known == step).map(|(_, _, needed)| {
        let is_missing = |name: &&&str| argument(arguments, name).is_none();
        needed.iter().filter(is_missing).copied().collect::<Vec<_>>()
    });
    let missing = missing.min_by_key(Vec::len).unwrap_or_default();
    if !missing.is_empty() {
        return Cause::certain(
            format!("{step} lacks {}", missing.join(", ")),
            "set all attributes that the transition needs",
        );
    }
    let (source, target) = (argument(arguments, "sgid"), argument(arguments, "dgid"));
    if let (Some(index), Some(target)) = (argument(arguments, "sgid_index"), target) {
        let is_v4 = |gid: &str| gid.starts_with("::ffff:");
        let Some(source) = source.filter(|source| *source != "::") else {
            return Cause::certain(
                format!("wrong GID index: sgid_index {index} has no GID"),
                "choose an index from `show_gids`, of the interface that reaches the peer",
            );
        };
        if is_v4(source) != is_v4(target) {
            return Cause::certain(
                format!(
                    "wrong GID index: sgid_index {index} is {source}, and dgid is {target}, of another address family"
                ),
                "use GIDs of one family on both sides",
            );
        }
    }
    if step == "INIT→RTR" && target.is_none() && argument(arguments, "dlid").and_then(number).is_some() {
        return Cause::likely("the path has no GID: Ethernet needs one", "set is_global, dgid and sgid_index");
    }
    Cause::likely(
        format!("the driver rejects the attributes with {error}"),
        "compare path_mtu with the port's, max_dest_rd_atomic and max_rd_atomic with the device's limits",
    )
}
