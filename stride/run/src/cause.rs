//! Describes a failed completion together with the usual cause of its status.

use std::fmt;

use anyhow::Error;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;

use crate::qp_driver::qp_index;

/// A request that failed. `Display` writes a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    status: Status,
    vendor: u32,
    /// The number of the queue pair.
    number: u32,
    /// The index of the queue pair among those of its thread.
    pub qp: usize,
    /// Whether the request was a receive.
    pub is_receive: bool,
    /// The number of the remote queue pair, and the address of its port.
    peer: Option<String>,
}

impl Failed {
    /// Creates the description of a failed request. `number` is the number of its queue pair.
    #[cold]
    pub(crate) fn new(status: Status, vendor: u32, number: u32, wr_id: u64) -> Self {
        Self { status, vendor, number, qp: qp_index(wr_id), is_receive: false, peer: None }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, vendor, number, is_receive, peer, .. } = self;
        let (what, way) = if *is_receive { ("receive", "from") } else { ("request", "to") };
        write!(f, "a {what} on queue pair {number:#x}")?;
        if let Some(peer) = peer {
            write!(f, " {way} {peer}")?;
        }
        write!(f, " failed: {status}")?;
        if *vendor != 0 {
            write!(f, " (vendor's code {vendor:#x})")?;
        }
        likely(*status).map_or(Ok(()), |likely| write!(f, ": {likely}"))
    }
}

impl std::error::Error for Failed {}

/// Marks an error as the failure of a receive.
#[cold]
pub(crate) fn of_receive(error: Error) -> Error {
    change(error, |failed| failed.is_receive = true)
}

/// If an error describes a failed request, adds the remote queue pair to it.
#[cold]
pub fn with_peer(error: Error, peer: impl FnOnce(&Failed) -> Option<String>) -> Error {
    change(error, |failed| failed.peer = peer(failed))
}

fn change(error: Error, change: impl FnOnce(&mut Failed)) -> Error {
    match error.downcast::<Failed>() {
        Ok(mut failed) => {
            change(&mut failed);
            failed.into()
        }
        Err(other) => other,
    }
}

/// Returns the usual cause of a status, with a remedy.
fn likely(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::RetryCounterExceededError => {
            "the peer did not acknowledge: it has ended its test, the GIDs do not reach each other (-x on both sides; \
             RoCE v2 requires UDP port 4791), a switch has a smaller MTU (-m), or the fabric drops packets (-u raises \
             the timeout)"
        }
        Status::ResponderNotReadyRetryCounterExceededError => "the peer had no receive posted; raise -r",
        Status::RemoteAccessError => {
            "the peer refused the access: the key, the address or the access rights do not match"
        }
        Status::RemoteInvalidRequestError => {
            "the peer rejected the request: the message is longer than its receive, or too many reads and atomics are in flight"
        }
        Status::RemoteOperationError => "the peer could not execute the request; check its device and memory",
        Status::LocalProtectionError => "the local memory is not accessible: it is deregistered, or its key is wrong",
        Status::LocalLengthError => {
            "the message is longer than the receive, or than the port or the transport supports"
        }
        Status::LocalQueuePairOperationError => "the device reports an inconsistent request or queue pair",
        Status::WorkRequestFlushedError => "the queue pair had already failed; an earlier error is the cause",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_request_names_status_and_cause() {
        let text = Failed::new(Status::RetryCounterExceededError, 0x81, 0x12, 0).to_string();
        assert!(text.starts_with("a request on queue pair 0x12 failed: transport retry counter exceeded"), "{text}");
        assert!(text.contains("(vendor's code 0x81): the peer did not acknowledge"), "{text}");
        let text = Failed::new(Status::from_raw(4000), 0, 1, 0).to_string();
        assert!(!text.contains("vendor") && text.ends_with("(4000)"), "{text}");
    }

    #[test]
    fn failed_request_names_the_remote_queue_pair() {
        let peer = |failed: &Failed| Some(format!("queue pair 0x{} of it", failed.qp));
        let failed = || Error::from(Failed::new(Status::RemoteAccessError, 0, 0x12, 7 << 32 | 5));
        let text = with_peer(failed(), peer).to_string();
        assert!(
            text.starts_with("a request on queue pair 0x12 to queue pair 0x7 of it failed: remote access"),
            "{text}"
        );
        let text = with_peer(of_receive(failed()), peer).to_string();
        assert!(text.starts_with("a receive on queue pair 0x12 from queue pair 0x7 of it failed: remote"), "{text}");
        assert_eq!(with_peer(Error::msg("else"), peer).to_string(), "else");
    }
}
