//! The traits and types that most programs use.
//!
//! ```
//! use sideway::prelude::*;
//!
//! # fn main() -> std::io::Result<()> {
//! # softrnic::register().unwrap();
//! let context = DeviceList::new()?.find("soft0")?.open()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq_builder().setup_cqe(16).build_generic()?;
//! let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_generic()?;
//! println!("{} on {}", qp.qp_number(), context.name());
//! # Ok(())
//! # }
//! ```

pub use crate::error::VerbError;
pub use crate::ibverbs::AccessFlags;
pub use crate::ibverbs::completion::{
    CompletionQueue, PollCompletionQueueError, PollCompletions, WorkCompletion, WorkCompletionStatus,
};
pub use crate::ibverbs::device::{DeviceInfo, DeviceList};
pub use crate::ibverbs::queue_pair::{PostSendGuard, QueuePair, RcOptions, SendQueue};
pub use crate::ibverbs::work_request::{SetInlineData, SetScatterGatherEntry, WorkRequestFlags};
