//! Counts the packets that arrive on queue 0 of an interface: `sudo count veth0`.

use std::time::{Duration, Instant};

use xsk::{AttachMode, Filter, Interface, Program, Socket, Umem};

#[expect(clippy::print_stdout, reason = "a program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: count INTERFACE")?;
    let interface = Interface::by_name(&name)?;
    let (umem, mut pool) = Umem::builder(4096).build()?;
    let mut queue = Socket::builder(&interface, 0).open_rx(&umem)?;
    queue.fill.refill(&mut pool);

    let program = Program::load(Filter::All)?;
    program.map().insert(queue.rx.socket())?;
    let _attached = program.attach(&interface, AttachMode::Auto)?; // until it is dropped

    let (mut packets, mut bytes, mut printed) = (0, 0, Instant::now());
    loop {
        queue.rx.wait(Duration::from_millis(100))?;
        // After the closure, each frame returns to the kernel.
        packets += queue.rx.batch(64).recycle(&mut queue.fill, |packet| bytes += packet.len());
        if printed.elapsed() >= Duration::from_secs(1) {
            println!("{packets} packets, {bytes} bytes");
            printed = Instant::now();
        }
    }
}
