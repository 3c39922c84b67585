//! A driver believes that a tag is in its list: that it is, and not another by now, is the caller's promise.

use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, Tag, TagMatchingOperationFlags};

fn delete(mut guard: PostTagOperationsGuard<'_>, tag: Tag) {
    guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_delete(tag);
}

fn main() {}
