//! Sends each packet back on the link from which it came, with its Ethernet addresses exchanged.

mod support;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use self::support::{Counter, OneLink, Options, RIGHTS, Steering, is_stopped, run, swap_addresses, work};

/// Send each packet back on its link, with the Ethernet addresses swapped
#[derive(Clone, Debug, Parser)]
#[command(name = "l2fwd-1link", after_help = RIGHTS, max_term_width = 110)]
struct Arguments {
    #[command(flatten)]
    link: OneLink,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    run(|| carry_out(&arguments))
}

fn carry_out(arguments: &Arguments) -> Result<()> {
    let (options, link) = (&arguments.options, arguments.link.link());
    let (umem, mut pool) = options.umem().build()?;
    let mut queue = options.socket(&link, 1)?.open(&umem)?;
    queue.fill.refill(&mut pool);
    let mut steering = Steering::default();
    steering.add(options, &link, queue.rx.socket())?;
    let counter = Counter::default();
    let worker = || {
        while !is_stopped() {
            let mut bytes = 0;
            let count = queue.rx.batch(options.batch()).forward(&mut queue.tx, |packet| {
                bytes += packet.len();
                swap_addresses(packet);
            });
            counter.add(count, bytes);
            if queue.tx.pending() != 0 {
                queue.tx.wake()?;
            }
            queue.completion.batch(options.batch()).refill(&mut queue.fill);
            queue.fill.wake()?;
            if options.is_busy_polling() {
                queue.rx.busy_poll()?;
            } else if count == 0 && queue.tx.pending() == 0 {
                queue.rx.wait(support::IDLE)?;
            }
        }
        Ok(())
    };
    work(vec![worker], &[(link.name.clone(), &counter)])?;
    steering.report_losses()
}
