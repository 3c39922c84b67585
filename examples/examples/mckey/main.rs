//! Sends datagrams to a multicast group, or receives them: `mckey`, in Rust, and a peer of that program.
//!
//! ```text
//! Crew::join      Identifier::bind_addr or resolve_addr     the device
//!                 Identifier::create_qp_generic             a queue pair that the library attaches to the group
//!                 Identifier::join_multicast_with           … MulticastJoin: the way to the group, and its keys
//! sender::run     one SEND with immediate data for each message, which has the number of its queue pair
//! receiver::run   counts what comes, by sender, until all is there or nothing comes any more
//! Crew::leave     Identifier::leave_multicast
//! ```

mod arguments;
mod crew;
mod member;
mod receiver;
mod sender;
mod tally;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::Arguments;
use self::crew::Crew;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut crew = Crew::join(&arguments, out)?;
    // What was missed is told in any case, but the groups are left before.
    let done = if arguments.sender {
        sender::run(&mut crew, &arguments, out)
    } else {
        receiver::run(&mut crew, &arguments, out)
    };
    done.and(crew.leave())
}
