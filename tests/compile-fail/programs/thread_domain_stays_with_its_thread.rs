//! A domain created from a thread domain on another thread would share its doorbell.

use sideway::ibverbs::thread_domain::ThreadDomain;

fn share(td: &ThreadDomain) {
    std::thread::scope(|scope| {
        scope.spawn(|| td.device_context());
    });
}

fn main() {}
