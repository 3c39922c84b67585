//! A copy would destroy the channel twice. Share the `Arc`.

use std::sync::Arc;

use sideway::ibverbs::completion::CompletionChannel;

fn copy(channel: Arc<CompletionChannel>) -> CompletionChannel {
    CompletionChannel::clone(&channel)
}

fn main() {}
