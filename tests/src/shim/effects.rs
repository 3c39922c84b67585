//! The objects that each call creates, releases and writes.

use std::any::TypeId;

use rdma_mummy_sys as ffi;

use super::forward::{Prototype, Type, prototype};
use super::state::State;
use crate::recording::Kind;

/// What a call creates, by its return type.
const RETURNED: &[(Type, Kind)] = &[
    (TypeId::of::<*mut ffi::rdma_event_channel>, Kind::EventChannel),
    (TypeId::of::<*mut *mut ffi::ibv_context>, Kind::OpenDevices),
    (TypeId::of::<*mut ffi::ibv_pd>, Kind::ProtectionDomain),
    (TypeId::of::<*mut ffi::ibv_cq>, Kind::CompletionQueue),
    (TypeId::of::<*mut ffi::ibv_qp>, Kind::QueuePair),
    (TypeId::of::<*mut ffi::ibv_srq>, Kind::SharedReceiveQueue),
    (TypeId::of::<*mut ffi::ibv_comp_channel>, Kind::CompletionChannel),
    (TypeId::of::<*mut ffi::ibv_ah>, Kind::AddressHandle),
    (TypeId::of::<*mut ffi::ibv_context>, Kind::Context),
];

/// Calls that return a new object through the argument with this index.
const WRITTEN: &[(&str, usize, Kind)] = &[
    ("rdma_create_id", 1, Kind::Identifier),
    ("rdma_create_ep", 0, Kind::Identifier),
    ("rdma_get_request", 1, Kind::Identifier),
    ("rdma_getaddrinfo", 3, Kind::AddressInformation),
    ("rdma_query_addrinfo", 1, Kind::AddressInformation),
    ("rdma_get_cm_event", 1, Kind::ConnectionEvent),
];

/// Calls that release their first argument.
const ENDED: &[(&str, Kind)] = &[
    ("rdma_destroy_event_channel", Kind::EventChannel),
    ("rdma_destroy_id", Kind::Identifier),
    ("rdma_destroy_ep", Kind::Identifier),
    ("rdma_freeaddrinfo", Kind::AddressInformation),
    ("rdma_ack_cm_event", Kind::ConnectionEvent),
    ("rdma_free_devices", Kind::OpenDevices),
    ("dealloc_pd", Kind::ProtectionDomain),
    ("unimport_pd", Kind::ProtectionDomain),
    ("destroy_cq", Kind::CompletionQueue),
    ("destroy_comp_channel", Kind::CompletionChannel),
    ("destroy_ah", Kind::AddressHandle),
    ("destroy_qp", Kind::QueuePair),
    ("destroy_srq", Kind::SharedReceiveQueue),
    ("close_device", Kind::Context),
];

/// Calls whose first argument is an identifier, and that only read its C struct. All other calls write the struct.
const READERS: [&str; 16] = [
    "rdma_disconnect",
    "rdma_establish",
    "rdma_get_dst_port",
    "rdma_get_remote_ece",
    "rdma_get_src_port",
    "rdma_init_qp_attr",
    "rdma_join_multicast",
    "rdma_join_multicast_ex",
    "rdma_leave_multicast",
    "rdma_notify",
    "rdma_query_addrinfo",
    "rdma_reject",
    "rdma_reject_ece",
    "rdma_resolve_addrinfo",
    "rdma_set_option",
    "rdma_write_cm_event",
];

/// The identifier of a call, and whether the call writes its struct.
pub(super) fn identifier(verb: &str, arguments: &[u64]) -> Option<(usize, bool)> {
    let prototype = prototype(verb)?;
    prototype.takes(TypeId::of::<*mut ffi::rdma_cm_id>).then(|| (arguments[0] as usize, !READERS.contains(&verb)))
}

/// The target of an argument.
///
/// # Safety
///
/// The argument was the address of a live `T` when the function was called, and that `T` is still alive.
unsafe fn at<T: Copy>(address: u64) -> T {
    // SAFETY: guaranteed by the caller; the address was exposed when it became a number.
    unsafe { std::ptr::with_exposed_provenance::<T>(address as usize).read() }
}

/// The part of a log entry besides the arguments.
pub(super) fn details(verb: &str, arguments: &[u64]) -> Vec<(&'static str, u64)> {
    match verb {
        // SAFETY: the caller keeps the contract of the C function: `optlen`, which is above zero, bytes can be read.
        "rdma_set_option" => vec![("first", u64::from(unsafe { at::<u8>(arguments[3]) }))],
        "rdma_join_multicast_ex" => {
            // SAFETY: as above, the attributes can be read.
            let attr = unsafe { at::<ffi::rdma_cm_join_mc_attr_ex>(arguments[1]) };
            vec![("comp_mask", attr.comp_mask.into()), ("join_flags", attr.join_flags.into())]
        }
        _ => Vec::new(),
    }
}

/// Records a call before it is forwarded.
pub(super) fn before(state: &mut State, verb: &str, arguments: &[u64]) {
    let object = arguments.first().copied().unwrap_or(0) as usize;
    if identifier(verb, arguments).is_some() && state.live.get(&object) != Some(&Kind::Identifier) {
        state.violation(format!("{verb} on an identifier that does not exist"));
    }
    let mut identifiers = state
        .live
        .iter()
        .filter(|(_, kind)| **kind == Kind::Identifier)
        .map(|(address, _)| std::ptr::with_exposed_provenance::<ffi::rdma_cm_id>(*address));
    let what = match verb {
        // SAFETY: the identifiers are live. Only this member is read, because another thread that reads an event may
        // write the others.
        "rdma_destroy_event_channel" if identifiers.any(|id| unsafe { (*id).channel }.addr() == object) => {
            Some("an event channel that has identifiers was destroyed")
        }
        // SAFETY: as above.
        "destroy_qp" if identifiers.any(|id| unsafe { (*id).qp }.addr() == object) => {
            Some("a queue pair that an identifier still uses was destroyed")
        }
        _ => None,
    };
    if let Some(what) = what {
        state.violation(what);
    }
    // The entry is removed before the memory is reused for another object.
    if let Some(kind) = ended(verb, object) {
        state.ended(kind, object);
    }
}

/// The kind of the object that a call releases, unless it is null.
fn ended(verb: &str, object: usize) -> Option<Kind> {
    ENDED.iter().find(|(name, _)| *name == verb && object != 0).map(|(_, kind)| *kind)
}

/// Records a failed call: the object that it should release still exists.
pub(super) fn failed(state: &mut State, verb: &str, arguments: &[u64]) {
    let object = arguments.first().copied().unwrap_or(0) as usize;
    if let Some(kind) = ended(verb, object) {
        state.made(kind, object);
    }
}

/// Records a successful call, and the object that it created, if any.
pub(super) fn after(state: &mut State, verb: &str, arguments: &[u64], object: usize) {
    let returned = |prototype: &Prototype| RETURNED.iter().find(|(result, _)| prototype.returns(*result));
    if let Some((_, kind)) = prototype(verb).and_then(returned) {
        state.made(*kind, object);
    }
    if let Some((_, index, kind)) = WRITTEN.iter().find(|(name, ..)| *name == verb) {
        // SAFETY: the call has written the pointer.
        state.made(*kind, unsafe { at(arguments[*index]) });
    }
    match verb {
        "rdma_create_qp" | "rdma_create_qp_ex" => {
            // SAFETY: the identifier is live.
            let id = unsafe { at::<ffi::rdma_cm_id>(arguments[0]) };
            state.made(Kind::QueuePair, id.qp.addr());
        }
        "rdma_create_srq" | "rdma_create_srq_ex" => {
            // SAFETY: the identifier is live.
            let id = unsafe { at::<ffi::rdma_cm_id>(arguments[0]) };
            state.made(Kind::SharedReceiveQueue, id.srq.addr());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::prototypes;
    use super::*;
    use crate::recording::verb;

    #[test]
    fn readers_are_calls_on_an_identifier() {
        for name in READERS {
            assert_eq!(identifier(name, &[7]), Some((7, false)), "{name}");
        }
        assert_eq!(identifier("rdma_destroy_qp", &[7]), Some((7, true)));
        assert_eq!(identifier("rdma_create_id", &[7]), None);
    }

    #[test]
    fn releasing_calls_are_listed() {
        let gives_back = |name: &str| {
            let words = ["ack_cm_event", "close", "dealloc", "destroy", "free", "unimport"];
            words.iter().any(|word| name.contains(word))
        };
        let written: [Type; 3] = [
            TypeId::of::<*mut ffi::rdma_cm_id>,
            TypeId::of::<*mut ffi::rdma_addrinfo>,
            TypeId::of::<*mut ffi::rdma_cm_event>,
        ];
        let types: Vec<Type> = RETURNED.iter().map(|(result, _)| *result).chain(written).collect();
        let mut found: Vec<_> = prototypes()
            .filter(|prototype| gives_back(prototype.name) && types.iter().any(|first| prototype.takes(*first)))
            .map(|prototype| verb(prototype.name))
            // These calls release objects of an identifier, but not the identifier.
            .filter(|name| !["rdma_destroy_qp", "rdma_destroy_srq"].contains(name))
            .collect();
        let mut listed: Vec<_> = ENDED.iter().map(|(name, _)| *name).collect();
        found.sort();
        listed.sort();
        assert_eq!(found, listed);
    }

    #[test]
    fn object_released_twice_is_a_violation() {
        let queues = [Kind::CompletionQueue, Kind::QueuePair, Kind::SharedReceiveQueue];
        for (verb, kind) in ENDED.iter().filter(|(_, kind)| !queues.contains(kind)) {
            let mut state = State::default();
            // An address is enough, because no function here reads the identifier.
            state.made(*kind, 7);
            state.ended(*kind, 7);
            assert_eq!(state.violations, [""; 0], "{verb}");
            before(&mut state, verb, &[7]);
            let expected = format!("a {kind:?} that does not exist was released");
            assert!(state.violations.contains(&expected), "{verb}: {:?}", state.violations);
        }
    }
}
