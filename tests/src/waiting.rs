//! Waiting for completions, and for their absence.

use std::time::{Duration, Instant};

use sideway::ibverbs::completion::{
    GenericCompletionQueue, GenericPoller, GenericWorkCompletion, PollCompletionQueueError,
};

use crate::completion_log;

/// How long a completion may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the absence of completions is observed.
const SILENCE: Duration = Duration::from_millis(100);

/// The first result of `poll`.
///
/// # Panics
///
/// If `poll` finds nothing in time.
#[track_caller]
pub(crate) fn first<T>(name: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{name}: nothing completed within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Asserts that `poll` finds nothing.
///
/// # Panics
///
/// If `poll` finds something.
#[track_caller]
pub(crate) fn nothing<T: std::fmt::Debug>(name: &str, mut poll: impl FnMut() -> Option<T>) {
    let started = Instant::now();
    while started.elapsed() < SILENCE {
        if let Some(found) = poll() {
            panic!("{name}: {found:?}");
        }
        std::thread::yield_now();
    }
}

/// Takes one completion off the queue, if there is one, and passes it to `read`.
///
/// # Panics
///
/// If the queue is broken.
#[track_caller]
pub(crate) fn take<T>(
    queue: &mut GenericCompletionQueue,
    read: impl FnOnce(GenericWorkCompletion<'_>) -> T,
) -> Option<T> {
    // A poll of a basic queue takes a whole batch, of which the rest would be lost here.
    if let GenericCompletionQueue::Basic(queue) = queue {
        queue.setup_poll_batch(1);
    }
    let mut poller: GenericPoller<'_> = match queue.start_poll() {
        Ok(poller) => poller,
        Err(PollCompletionQueueError::CompletionQueueEmpty) => return None,
        Err(error) => panic!("{error}"),
    };
    poller.next().unwrap_or_else(|error| panic!("{error}")).map(|completion| {
        completion_log::write(&completion);
        read(completion)
    })
}
