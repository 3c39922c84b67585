//! Why a queue pair could not be modified, found out after the kernel has said no.

use std::{error, fmt};

use super::QueuePairCore;
use super::transition::{TransitionTable, reachable};
use super::{QueuePairAttribute, QueuePairAttributeMask as Mask, QueuePairState as State, QueuePairType as Type};
use crate::error::{Errno, VerbError};
use crate::ibverbs::address::Gid;
use crate::ibverbs::device_context::LinkLayer;

/// Why `ibv_modify_qp` failed.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum ModifyQueuePairError {
    /// There is no transition between these states.
    InvalidTransition {
        /// The transport service of the queue pair.
        qp_type: Type,
        /// The state that it is in.
        from: State,
        /// The state that was asked for.
        to: State,
        /// The states that can be reached.
        reachable: Vec<State>,
        /// What the driver gave.
        source: VerbError,
    },
    /// The attributes are not those of the transition.
    InvalidAttributeMask {
        /// The state that the queue pair is in.
        from: State,
        /// The state that was asked for.
        to: State,
        /// What the transition needs and was not set.
        needed: Mask,
        /// What was set and the transition does not take.
        invalid: Mask,
        /// What the driver gave.
        source: VerbError,
    },
    /// `ETIMEDOUT`: the hardware address of the peer could not be found out (ARP, neighbour discovery).
    ResolveRouteTimedout {
        /// The GID of this side that was to be used.
        sgid_index: u8,
        /// The GID of the peer.
        dgid: Gid,
        /// What the driver gave.
        source: VerbError,
    },
    /// `ENETUNREACH`: from the GID of this side there is no route to the peer's.
    NetworkUnreachable {
        /// The GID of this side that was to be used.
        sgid_index: u8,
        /// The GID of the peer.
        dgid: Gid,
        /// What the driver gave.
        source: VerbError,
    },
    /// Anything else.
    Verb {
        /// The state that the queue pair is in.
        from: State,
        /// The state that was asked for.
        to: State,
        /// What the driver gave, with a hint where an attribute is known to be wrong.
        source: VerbError,
    },
}

crate::error::debug_is_text!(ModifyQueuePairError);

impl ModifyQueuePairError {
    /// Finds the cause of a failure.
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
            // An entry of the GID table that is not in use.
            libc::ENODATA => Self::Verb { from, to, source: explain_value(qp, attribute, source) },
            _ => Self::Verb { from, to, source },
        }
    }

    /// What the state tables find wrong; gives `source` back where they find nothing.
    fn of_transition(
        (qp_type, table): (Type, TransitionTable),
        from: State,
        to: State,
        mask: Mask,
        source: VerbError,
    ) -> Result<Self, VerbError> {
        let Some(transition) = table(qp_type, from, to) else {
            let reachable: Vec<State> = reachable(table, qp_type, from).collect();
            // Where there is none, the table knows nothing of this service or state.
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

    /// What the driver gave.
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

/// Looks for a value that the port cannot do, the mask being right.
fn explain_value(qp: &QueuePairCore, attribute: &QueuePairAttribute, error: VerbError) -> VerbError {
    let mask = attribute.mask();
    let address = attribute.address_vector();
    let port_num = if mask.contains(Mask::Port) { attribute.port() } else { address.port() };
    if mask.contains(Mask::AlternatePath)
        && let Ok(port) = qp.context().query_port(attribute.alternate_port())
        && port.link_layer() == LinkLayer::Ethernet
    {
        return error.with_hint("the kernel has alternate paths on InfiniBand alone, and the port is Ethernet");
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
        return error.with_hint("the port is Ethernet: the address vector needs setup_grh with the peer's GID");
    }
    if address.is_global() && u32::from(address.grh_src_gid_index()) >= port.gid_tbl_len() {
        return error.with_hint(format!(
            "GID index {} is asked for and port {port_num} has {} entries",
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
            "the path MTU {} is above the active MTU {} of port {port_num}",
            attribute.path_mtu(),
            port.active_mtu()
        ));
    }
    error
}

/// What is wrong with the two GIDs, if anything.
fn explain_gids(qp: &QueuePairCore, port_num: u8, index: u8, peer: Gid) -> Option<String> {
    // Libraries differ in whether an entry that is not in use is an error.
    let own = qp.context().query_gid(port_num, index.into()).unwrap_or_default();
    if own.is_zero() {
        return Some(format!("GID index {index} of port {port_num} is empty: choose one that show_gids lists"));
    }
    if peer.is_zero() {
        return Some("the peer's GID is zero: did it choose one?".to_owned());
    }
    (own.is_ipv4_mapped() != peer.is_ipv4_mapped()).then(|| {
        format!(
            "one is an IPv4 address and the other IPv6: GID index {index}, {own}, and the peer's GID {peer}; choose both of \
             one kind (show_gids)"
        )
    })
}

impl fmt::Display for ModifyQueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |source: &VerbError| source.errno();
        match self {
            Self::InvalidTransition { from, to, reachable, source, .. } => {
                write!(f, "ibv_modify_qp({from:?} -> {to:?}): {:?}: no such transition; from {from:?}", errno(source))?;
                let mut separator = " one can go to ";
                for state in reachable {
                    write!(f, "{separator}{state:?}")?;
                    separator = ", ";
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
                "ibv_modify_qp: {}: nobody answered for the peer's GID {dgid} from GID index {sgid_index}: is the peer up \
                 and on this network, and does the index belong to it (show_gids)?",
                errno(source)
            ),
            Self::NetworkUnreachable { sgid_index, dgid, source } => write!(
                f,
                "ibv_modify_qp: {}: there is no route from GID index {sgid_index} to the peer's GID {dgid}: both must be \
                 of one kind (IPv4 or IPv6, same RoCE version), see show_gids on both sides",
                errno(source)
            ),
            Self::Verb { from, to, source } => {
                write!(f, "ibv_modify_qp({from:?} -> {to:?}): {}", errno(source))?;
                source.hint().map_or(Ok(()), |hint| write!(f, ": {hint}"))
            }
        }
    }
}

// The text has that of the error inside, and so the source is that one's: none.
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
    fn a_wrong_mask_is_named_exactly() {
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
    fn an_illegal_transition_says_what_is_legal() {
        assert_eq!(
            diagnose(State::Reset, State::ReadyToSend, Mask::empty()),
            "ibv_modify_qp(Reset -> ReadyToSend): EINVAL: no such transition; from Reset one can go to Reset, Init"
        );
    }

    #[test]
    fn unknown_states_print_and_do_not_panic() {
        let unknown = State::from_raw(77);
        assert!(diagnose(State::Reset, unknown, Mask::empty()).contains("QueuePairState(77)"));
        assert_eq!(diagnose(State::Unknown, State::Init, Mask::empty()), einval().to_string());
    }
}
