//! An iterator cannot lend its items: all items would be the same cursor.

use sideway::ibverbs::completion::ExtendedPoller;

fn iterate(poller: ExtendedPoller<'_>) {
    for _ in poller {}
}

fn main() {}
