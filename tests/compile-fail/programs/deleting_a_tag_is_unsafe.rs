//! A driver does not check that a tag is in its list, so the caller must guarantee it.

use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, Tag, TagMatchingOperationFlags};

fn delete(mut guard: PostTagOperationsGuard<'_>, tag: Tag) {
    guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_delete(tag);
}

fn main() {}
