//! Counts packets as an async task of tokio: `sudo xsk_tokio INTERFACE`.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use xsk::{AttachMode, Filter, Interface, Program, Socket, Umem};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: xsk_tokio INTERFACE")?;
    let interface = Interface::by_name(&name)?;
    let (umem, mut pool) = Umem::builder(4096).build()?;
    let mut queue = Socket::builder(&interface, 0).open_rx(&umem)?;
    queue.fill.refill(&mut pool);
    let program = Program::load(Filter::All)?;
    program.map().insert(queue.rx.socket())?;
    let _attached = program.attach(&interface, AttachMode::Auto)?;

    // The task owns a duplicate of the descriptor. The socket itself stays open while the rings exist.
    let descriptor = queue.rx.as_fd().try_clone_to_owned()?;
    // SAFETY: the value owns its descriptor, which stays open and the same until it is dropped.
    let readable = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? };
    let mut total = 0;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            guard = readable.readable() => {
                let mut guard = guard?;
                let count = queue.rx.batch(64).recycle(&mut queue.fill, |_| {});
                total += count;
                queue.fill.wake()?;
                if queue.rx.available() == 0 {
                    guard.clear_ready();
                }
            }
            _ = second.tick() => {
                // A socket whose interface was removed is never readable again.
                Interface::by_index(interface.index())?;
                writeln!(io::stdout(), "{total} packets")?;
            }
        }
    }
}
