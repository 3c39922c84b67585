//! The kinds of queue pairs and completion queues.

use std::fmt;

use sideway::error::VerbError;
use sideway::ibverbs::completion::{CompletionQueueBuilder, GenericCompletionQueue};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Connected, Datagram, ExtendedQueuePair, GenericQueuePair, QueuePair, QueuePairBuilder,
};

/// The name of a kind of queue pair in messages.
pub trait Named {
    /// The name.
    const NAME: &'static str;
}

/// A kind of queue pair, for a service.
pub trait Kind<S = Connected>: QueuePair<Service = S> + Named + fmt::Debug + Send + Sized {
    /// Creates a queue pair of this kind.
    ///
    /// # Errors
    ///
    /// The errors of the builder.
    fn build(builder: &QueuePairBuilder<S>) -> Result<Self, VerbError>;
}

macro_rules! kinds {
    ($($Pair:ident, $name:literal, $build:ident: $($Service:ident)+;)+) => { $($(
        impl Named for $Pair<$Service> {
            const NAME: &'static str = $name;
        }

        impl Kind<$Service> for $Pair<$Service> {
            fn build(builder: &QueuePairBuilder<$Service>) -> Result<Self, VerbError> {
                builder.$build()
            }
        }
    )+)+ };
}
kinds! {
    BasicQueuePair, "basic", build: Connected Datagram;
    ExtendedQueuePair, "extended", build_ex: Connected Datagram;
    GenericQueuePair, "generic", build_generic: Connected Datagram;
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
/// results. The service is `Connected` unless named.
#[macro_export]
macro_rules! on_all_kinds {
    ($function:ident) => {
        $crate::on_all_kinds!($function, Connected)
    };
    ($function:ident, $Service:ident) => {{
        use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, GenericQueuePair};
        let has_extended = $crate::device::has_extended_queue_pairs();
        for queue in $crate::loopback::QueueKind::ALL {
            println!("{}: {queue:?} completion queue", stringify!($function));
            $function::<BasicQueuePair<sideway::ibverbs::queue_pair::$Service>>(queue);
            if has_extended {
                $function::<ExtendedQueuePair<sideway::ibverbs::queue_pair::$Service>>(queue);
            }
            $function::<GenericQueuePair<sideway::ibverbs::queue_pair::$Service>>(queue);
        }
    }};
}
