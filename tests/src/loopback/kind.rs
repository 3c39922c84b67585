//! The kinds of queue pairs and completion queues.

use std::fmt;

use sideway::error::VerbError;
use sideway::ibverbs::completion::{CompletionQueueBuilder, GenericCompletionQueue};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Connected, ExtendedQueuePair, GenericQueuePair, QueuePair, QueuePairBuilder,
};

/// A kind of queue pair.
pub trait Kind: QueuePair<Service = Connected> + fmt::Debug + Send + Sized {
    /// The name in messages.
    const NAME: &'static str;

    /// Creates a queue pair of this kind.
    ///
    /// # Errors
    ///
    /// The errors of the builder.
    fn build(builder: &QueuePairBuilder) -> Result<Self, VerbError>;
}

impl Kind for BasicQueuePair {
    const NAME: &'static str = "basic";

    fn build(builder: &QueuePairBuilder) -> Result<Self, VerbError> {
        builder.build()
    }
}

impl Kind for ExtendedQueuePair {
    const NAME: &'static str = "extended";

    fn build(builder: &QueuePairBuilder) -> Result<Self, VerbError> {
        builder.build_ex()
    }
}

impl Kind for GenericQueuePair {
    const NAME: &'static str = "generic";

    fn build(builder: &QueuePairBuilder) -> Result<Self, VerbError> {
        builder.build_generic()
    }
}

/// A kind of completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// From `build`.
    Basic,
    /// From `build_ex`.
    Extended,
    /// From `build_generic`.
    Generic,
}

impl QueueKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Basic, Self::Extended, Self::Generic];

    /// Creates a queue of this kind.
    ///
    /// # Panics
    ///
    /// If the queue cannot be created.
    #[track_caller]
    pub fn build(self, builder: &CompletionQueueBuilder) -> GenericCompletionQueue {
        let queue = match self {
            Self::Basic => builder.build().map(Into::into),
            Self::Extended => builder.build_ex().map(Into::into),
            Self::Generic => builder.build_generic(),
        };
        queue.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// Runs a function for each kind of queue pair that the device has, with each kind of completion queue, and prints the
/// results.
#[macro_export]
macro_rules! on_all_kinds {
    ($function:ident) => {{
        use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, GenericQueuePair};
        let has_extended = $crate::device::has_extended_queue_pairs();
        for queue in $crate::loopback::QueueKind::ALL {
            println!("{}: {queue:?} completion queue", stringify!($function));
            $function::<BasicQueuePair>(queue);
            if has_extended {
                $function::<ExtendedQueuePair>(queue);
            }
            $function::<GenericQueuePair>(queue);
        }
    }};
}
