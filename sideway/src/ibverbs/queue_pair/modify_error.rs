//! Determines why a queue pair could not be modified, after the kernel has rejected the change.

use std::{error, fmt};

use super::QueuePairCore;
use super::transition::{TransitionTable, reachable};
use super::{QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairState as State, QueuePairType as Type};
use crate::error::{Errno, VerbError};
use crate::ibverbs::address::Gid;
use crate::ibverbs::device_context::LinkLayer;

/// The error of `ibv_modify_qp`.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum ModifyQueuePairError {
    /// There is no transition between these states.
    InvalidTransition {
        /// The transport service of the queue pair.
        qp_type: Type,
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
        /// The states that can be reached from the current one.
        reachable: Vec<State>,
        /// The driver's error.
        source: VerbError,
    },
    /// The attributes do not match the transition.
    InvalidAttributeMask {
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
        /// The attributes that the transition requires but that were not set.
        needed: Mask,
        /// The attributes that were set although the transition does not permit them.
        invalid: Mask,
        /// The driver's error.
        source: VerbError,
    },
    /// `ETIMEDOUT`: the peer's hardware address could not be resolved (ARP, neighbour discovery).
    ResolveRouteTimedout {
        /// The index of the local GID.
        sgid_index: u8,
        /// The peer's GID.
        dgid: Gid,
        /// The driver's error.
        source: VerbError,
    },
    /// `ENETUNREACH`: there is no route from the local GID to the peer's GID.
    NetworkUnreachable {
        /// The index of the local GID.
        sgid_index: u8,
        /// The peer's GID.
        dgid: Gid,
        /// The driver's error.
        source: VerbError,
    },
    /// Any other error.
    Verb {
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
        /// The driver's error, with a hint if an attribute is known to be wrong.
        source: VerbError,
    },
}

crate::error::debug_is_text!(ModifyQueuePairError);

impl ModifyQueuePairError {
    /// Determines the cause of a failure.
    #[cold]
    pub(crate) fn diagnose(qp: &QueuePairCore, attribute: &QueuePairAttribute, errno: Errno) -> Self {
        let source = VerbError::new("ibv_modify_qp", errno);
        let from = qp.current_state();
        let to = if attribute.mask().contains(Mask::State) { attribute.state() } else { from };
        let address = attribute.address_vector();
        let (sgid_index, dgid) = (address.grh_src_gid_index(), address.grh_dest_gid());
        let has_path = attribute.mask().contains(Mask::AddressVector);
        match errno.raw() {
            libc::ETIMEDOUT if has_path => Self::ResolveRouteTimedout { sgid_index, dgid, source },
            libc::ENETUNREACH | libc::EHOSTUNREACH if has_path => Self::NetworkUnreachable { sgid_index, dgid, source },
            libc::EINVAL => Self::of_transition((qp.qp_type(), qp.transitions()), from, to, attribute.mask(), source)
                .unwrap_or_else(|source| Self::Verb { from, to, source: explain_value(qp, attribute, source) }),
            // The kernel returns this errno for an unused entry of the GID table.
            libc::ENODATA => Self::Verb { from, to, source: explain_value(qp, attribute, source) },
            _ => Self::Verb { from, to, source },
        }
    }

    /// Returns the error that the transition tables explain, or `source` if they do not explain it.
    fn of_transition(
        (qp_type, table): (Type, TransitionTable),
        from: State,
        to: State,
        mask: Mask,
        source: VerbError,
    ) -> Result<Self, VerbError> {
        let Some(transition) = table(qp_type, from, to) else {
            let reachable: Vec<State> = reachable(table, qp_type, from).collect();
            // If no state is reachable, the table does not cover this service or state.
            return if reachable.is_empty() {
                Err(source)
            } else {
                Ok(Self::InvalidTransition { qp_type, from, to, reachable, source })
            };
        };
        let (needed, invalid) = transition.faults(mask);
        if needed.is_empty() && invalid.is_empty() {
            return Err(source);
        }
        Ok(Self::InvalidAttributeMask { from, to, needed, invalid, source })
    }

    /// Returns the driver's error.
    pub fn verb_error(&self) -> &VerbError {
        match self {
            Self::InvalidTransition { source, .. }
            | Self::InvalidAttributeMask { source, .. }
            | Self::ResolveRouteTimedout { source, .. }
            | Self::NetworkUnreachable { source, .. }
            | Self::Verb { source, .. } => source,
        }
    }
}

/// If the mask is correct, looks for a value that the port does not support.
fn explain_value(qp: &QueuePairCore, attribute: &QueuePairAttribute, error: VerbError) -> VerbError {
    let mask = attribute.mask();
    let address = attribute.address_vector();
    let port_num = if mask.contains(Mask::Port) { attribute.port() } else { address.port() };
    if mask.contains(Mask::AlternatePath)
        && let Ok(port) = qp.context().query_port(attribute.alternate_port())
        && port.link_layer() == LinkLayer::Ethernet
    {
        return error.with_hint(
            "the kernel supports alternate paths only on InfiniBand, and the port is Ethernet; \
            omit setup_alternate_path",
        );
    }
    if !mask.intersects(Mask::Port | Mask::AddressVector) {
        return error;
    }
    let port = match qp.context().query_port(port_num) {
        Ok(port) => port,
        Err(failure) => return error.with_hint(format!("port {port_num}: {failure}")),
    };
    if !mask.contains(Mask::AddressVector) {
        return error;
    }
    if port.link_layer() == LinkLayer::Ethernet && !address.is_global() {
        return error.with_hint(
            "the port is Ethernet, and the address vector has no global route; call setup_grh \
            with the peer's GID",
        );
    }
    if address.is_global() && u32::from(address.grh_src_gid_index()) >= port.gid_tbl_len() {
        return error.with_hint(format!(
            "port {port_num} has no GID index {}; use an index below {}",
            address.grh_src_gid_index(),
            port.gid_tbl_len()
        ));
    }
    if address.is_global()
        && port.link_layer() == LinkLayer::Ethernet
        && let Some(hint) = explain_gids(qp, port_num, address.grh_src_gid_index(), address.grh_dest_gid())
    {
        return error.with_hint(hint);
    }
    if mask.contains(Mask::PathMtu) && attribute.path_mtu().raw() > port.active_mtu().raw() {
        return error.with_hint(format!(
            "the path MTU {} exceeds the active MTU {} of port {port_num}; set a smaller one",
            attribute.path_mtu(),
            port.active_mtu()
        ));
    }
    error
}

/// Describes the mismatch of the two GIDs, if there is one.
fn explain_gids(qp: &QueuePairCore, port_num: u8, index: u8, peer: Gid) -> Option<String> {
    // Some libraries return an error for an unused entry, and others return zeros.
    let own = qp.context().query_gid(port_num, index.into()).unwrap_or_default();
    if own.is_zero() {
        return Some(format!("GID index {index} of port {port_num} is empty; choose one that show_gids lists"));
    }
    if peer.is_zero() {
        return Some("the peer's GID is zero; choose a GID on the peer".to_owned());
    }
    (own.is_ipv4_mapped() != peer.is_ipv4_mapped()).then(|| {
        format!(
            "one GID is IPv4 and the other IPv6: GID index {index}, {own}, and the peer's GID {peer}; choose both \
            of one type (show_gids)"
        )
    })
}

impl fmt::Display for ModifyQueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |source: &VerbError| source.errno();
        match self {
            Self::InvalidTransition { from, to, reachable, source, .. } => {
                write!(f, "ibv_modify_qp({from:?} -> {to:?}): {:?}: no such transition", errno(source))?;
                for (at, state) in reachable.iter().enumerate() {
                    match at {
                        0 => write!(f, "; from {from:?}, move to one of {state:?}")?,
                        _ => write!(f, ", {state:?}")?,
                    }
                }
                Ok(())
            }
            Self::InvalidAttributeMask { from, to, needed, invalid, source } => {
                write!(f, "ibv_modify_qp({from:?} -> {to:?}): {:?}:", errno(source))?;
                let mut separator = "";
                if !needed.is_empty() {
                    write!(f, " needs {needed}")?;
                    separator = ";";
                }
                if !invalid.is_empty() {
                    write!(f, "{separator} must not set {invalid}")?;
                }
                Ok(())
            }
            Self::ResolveRouteTimedout { sgid_index, dgid, source } => write!(
                f,
                "ibv_modify_qp: {}: no reply for the peer's GID {dgid} from GID index {sgid_index}; check that the \
                peer is up and on this network, and that the index belongs to it (show_gids)",
                errno(source)
            ),
            Self::NetworkUnreachable { sgid_index, dgid, source } => write!(
                f,
                "ibv_modify_qp: {}: there is no route from GID index {sgid_index} to the peer's GID {dgid}; choose \
                GIDs of one type on both sides (IPv4 or IPv6, same RoCE version; see show_gids)",
                errno(source)
            ),
            Self::Verb { from, to, source } => {
                write!(f, "ibv_modify_qp({from:?} -> {to:?}): {}", errno(source))?;
                source.hint().map_or(Ok(()), |hint| write!(f, ": {hint}"))
            }
        }
    }
}

// The text of this error includes the text of the inner error, so there is no source.
impl error::Error for ModifyQueuePairError {}

#[cfg(test)]
mod tests {
    use super::super::transition::standard_transition;
    use super::*;

    fn einval() -> VerbError {
        VerbError::new("ibv_modify_qp", Errno::EINVAL)
    }

    fn diagnose(from: State, to: State, mask: Mask) -> String {
        let rc = (Type::ReliableConnection, standard_transition as TransitionTable);
        ModifyQueuePairError::of_transition(rc, from, to, mask | Mask::State, einval())
            .map_or_else(|source| source.to_string(), |error| error.to_string())
    }

    #[test]
    fn wrong_mask_error_names_attributes() {
        let mask = Mask::AddressVector
            | Mask::PathMtu
            | Mask::DestinationQueuePairNumber
            | Mask::ReceiveQueuePacketSequenceNumber
            | Mask::Port;
        assert_eq!(
            diagnose(State::Init, State::ReadyToReceive, mask),
            "ibv_modify_qp(Init -> ReadyToReceive): EINVAL: needs MinResponderNotReadyTimer, MaxDestinationReadAtomic; \
             must not set Port"
        );
        assert_eq!(
            diagnose(State::Reset, State::Init, Mask::PartitionKeyIndex | Mask::Port),
            "ibv_modify_qp(Reset -> Init): EINVAL: needs AccessFlags"
        );
        assert_eq!(
            diagnose(State::Init, State::Error, Mask::Port),
            "ibv_modify_qp(Init -> Error): EINVAL: must not set Port"
        );
    }

    #[test]
    fn invalid_transition_error_lists_reachable_states() {
        assert_eq!(
            diagnose(State::Reset, State::ReadyToSend, Mask::empty()),
            "ibv_modify_qp(Reset -> ReadyToSend): EINVAL: no such transition; from Reset, move to one of Reset, Init"
        );
    }

    #[test]
    fn unknown_states_print_without_panic() {
        let unknown = State::from_raw(77);
        assert!(diagnose(State::Reset, unknown, Mask::empty()).contains("QueuePairState(77)"));
        assert_eq!(diagnose(State::Unknown, State::Init, Mask::empty()), einval().to_string());
    }
}
