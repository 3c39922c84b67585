//! The one who sends.

use std::io::Write;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use sideway::ibverbs::queue_pair::QueuePair;

use crate::arguments::Arguments;
use crate::crew::Crew;

/// Sends all messages, and waits until they have left.
pub(crate) fn run(crew: &mut Crew, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    if let Some(delay) = arguments.delay.0 {
        writeln!(out, "  sending in {} s", delay.as_secs_f64())?;
        out.flush()?;
        thread::sleep(delay);
    }
    let depth = crew.depth;
    for member in &mut crew.members {
        let count = member.tally.begin(depth);
        member.post_sends(&crew.memory, count)?;
    }
    while crew.members.iter().any(|member| !member.tally.is_complete()) {
        let deadline = arguments.timeout.0.and_then(|timeout| Instant::now().checked_add(timeout));
        let is_in_time = crew.wait(deadline, |members, completion| {
            let own = completion.qp_num();
            if let Some(member) = members.iter_mut().find(|member| member.qp.qp_number() == own) {
                member.tally.count(own);
            }
            Ok(())
        })?;
        if !is_in_time {
            bail!("the device does not tell that messages have left: nothing completed within --timeout");
        }
        for member in &mut crew.members {
            let count = member.tally.begin(depth);
            if count > 0 {
                member.post_sends(&crew.memory, count)?;
            }
        }
    }
    for member in &crew.members {
        let sent = member.tally.counted();
        writeln!(out, "  QPN {:#08x}: {sent} messages of {} bytes sent", member.qp.qp_number(), arguments.size)?;
    }
    Ok(out.flush()?)
}
