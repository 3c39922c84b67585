//! What a failed completion means, and what usually is the cause.

use anyhow::{Error, anyhow};
use sideway::ibverbs::completion::WorkCompletionStatus as Status;

/// A sentence for the user about a request that failed.
#[cold]
pub(crate) fn failed(status: Status, vendor: u32, number: u32) -> Error {
    let code = if vendor == 0 { String::new() } else { format!(" (vendor's code {vendor:#x})") };
    match likely(status) {
        Some(likely) => anyhow!("a request on queue pair {number:#x} failed: {status}{code}: {likely}"),
        None => anyhow!("a request on queue pair {number:#x} failed: {status}{code}"),
    }
}

/// The usual cause, and what to try.
fn likely(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::RetryExceededError => {
            "the other side did not answer: its side of the test has ended, the GIDs do not reach each other (-x on both \
             sides, RoCE v2 needs UDP port 4791 open), the MTU of a switch is smaller (-m), or the fabric drops packets (-u \
             gives more time)"
        }
        Status::ResponderNotReadyRetryExceededError => {
            "the other side had no receive posted: more of them (-r) may help"
        }
        Status::RemoteAccessError => "the other side does not allow the access: its key, address or rights are others",
        Status::RemoteInvalidRequestError => {
            "the other side found the request wrong: a message longer than its receive, or more reads and atomics at a time \
             than it has room for"
        }
        Status::RemoteOperationError => "the other side could not carry it out: look at its device and its memory",
        Status::LocalProtectionError => "the memory here cannot be used: its registration ended, or its key is wrong",
        Status::LocalLengthError => "a message is longer than a receive, or than the port or the service can carry",
        Status::LocalQueuePairOperationError => "the device found the request or the queue pair inconsistent",
        Status::WorkRequestFlushedError => "the queue pair had failed before: an earlier error is the cause",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_with_its_cause() {
        let text = failed(Status::RetryExceededError, 0x81, 0x12).to_string();
        assert!(text.starts_with("a request on queue pair 0x12 failed: transport retry counter exceeded"), "{text}");
        assert!(text.contains("(vendor's code 0x81): the other side did not answer"), "{text}");
        let text = failed(Status::from_raw(4000), 0, 1).to_string();
        assert!(!text.contains("vendor") && text.ends_with("(4000)"), "{text}");
    }
}
