//! Conversions of all errors of this crate to `std::io::Error`, so that `?` works in functions that return one.
//! [`TearDownError`](crate::ibverbs::queue_pair::teardown::TearDownError) has none, because its conversion would leak the
//! buffers that it contains; convert its [`drain_error`](crate::ibverbs::queue_pair::teardown::TearDownError::drain_error).

use std::io::{self, ErrorKind};

use crate::error::VerbError;
use crate::ibverbs::address::{NetdevNameError, ParseGidError};
use crate::ibverbs::completion::{FieldNotEnabled, PollCompletionQueueError};
use crate::ibverbs::device::{DeviceNotFoundError, GetDeviceListError, OpenDeviceError};
use crate::ibverbs::device_context::ParseGuidError;
use crate::ibverbs::flow::ParseKeyError;
use crate::ibverbs::memory_region::{RegionAccessError, ReregisterError};
use crate::ibverbs::queue_pair::teardown::DrainError;
use crate::ibverbs::queue_pair::{ConnectQueuePairError, ModifyQueuePairError};
use crate::ibverbs::work_request::PostError;
use crate::rdmacm::{ConnectError, CreateEventChannelError, GetAddressInfoError, LookupError};

/// Converts each error to an `io::Error` of this kind, with the same text.
macro_rules! io_errors {
    ($($Error:ty => |$error:pat_param| $kind:expr;)+) => { $(
        impl From<$Error> for io::Error {
            #[cold]
            fn from(error: $Error) -> Self {
                let kind = |$error: &$Error| $kind;
                Self::new(kind(&error), error)
            }
        }
    )+ };
}

io_errors! {
    VerbError => |error| error.kind();
    ParseGidError => |_| ErrorKind::InvalidInput;
    ParseGuidError => |_| ErrorKind::InvalidInput;
    ParseKeyError => |_| ErrorKind::InvalidInput;
    NetdevNameError => |error| match error {
        NetdevNameError::NoNetdev => ErrorKind::NotFound,
        NetdevNameError::Lookup { errno, .. } => errno.kind(),
    };
    FieldNotEnabled => |_| ErrorKind::Unsupported;
    PollCompletionQueueError => |error| match error {
        PollCompletionQueueError::CompletionQueueEmpty => ErrorKind::WouldBlock,
        PollCompletionQueueError::Verb(error) => error.kind(),
    };
    GetDeviceListError => |error| match error {
        GetDeviceListError::Load(_) => ErrorKind::Unsupported,
        GetDeviceListError::Verb(error) => error.kind(),
    };
    DeviceNotFoundError => |_| ErrorKind::NotFound;
    OpenDeviceError => |error| error.verb_error().kind();
    RegionAccessError => |_| ErrorKind::InvalidInput;
    ReregisterError => |error| error.verb_error().kind();
    ModifyQueuePairError => |error| of_modify(error);
    ConnectQueuePairError => |error| match error {
        ConnectQueuePairError::WrongType { .. } => ErrorKind::InvalidInput,
        ConnectQueuePairError::InvalidEndpoint(_) => ErrorKind::InvalidData,
        ConnectQueuePairError::Query(error) => error.kind(),
        ConnectQueuePairError::Modify(error) => of_modify(error),
    };
    DrainError => |error| match error {
        DrainError::QueueMissing { .. } | DrainError::MixedQueues => ErrorKind::InvalidInput,
        DrainError::Stuck { source, .. } => of_modify(source),
    };
    PostError => |error| error.verb_error().kind();
    CreateEventChannelError => |error| match error {
        CreateEventChannelError::Load(_) => ErrorKind::Unsupported,
        CreateEventChannelError::Verb(error) => error.kind(),
    };
    GetAddressInfoError => |error| match error {
        GetAddressInfoError::Lookup(_) => ErrorKind::Other,
        GetAddressInfoError::Verb(error) => error.kind(),
    };
    LookupError => |_| ErrorKind::Other;
    ConnectError => |error| error.kind();
}

fn of_modify(error: &ModifyQueuePairError) -> ErrorKind {
    use ModifyQueuePairError as E;
    let (E::InvalidTransition { source, .. }
    | E::InvalidAttributeMask { source, .. }
    | E::ResolveRouteTimedout { source, .. }
    | E::NetworkUnreachable { source, .. }
    | E::Verb { source, .. }) = error;
    source.kind()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;
    use crate::ibverbs::queue_pair::QueuePairState;

    fn converted<E>(error: E) -> io::Error
    where
        io::Error: From<E>,
    {
        (|| -> io::Result<()> { Err(error)? })().unwrap_err()
    }

    #[test]
    fn io_error_keeps_kind_and_text() {
        let verb = VerbError::new("ibv_open_device", Errno::EACCES);
        let error = converted(verb.clone());
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::PermissionDenied, verb.to_string()));
        let error = converted(PollCompletionQueueError::CompletionQueueEmpty);
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::WouldBlock, "the completion queue is empty".to_owned())
        );
        let (from, to) = (QueuePairState::Reset, QueuePairState::Init);
        let modify = ModifyQueuePairError::Verb { from, to, source: verb };
        let error = converted(ConnectQueuePairError::Modify(modify.clone()));
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::PermissionDenied, modify.to_string()));
        assert!(error.downcast::<ConnectQueuePairError>().is_ok());
        assert_eq!(converted(DrainError::MixedQueues).kind(), ErrorKind::InvalidInput);
    }
}
