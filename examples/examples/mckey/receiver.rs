//! The one who receives.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::queue_pair::QueuePair;

use crate::arguments::Arguments;
use crate::crew::{Crew, HEADROOM};

/// Receives all messages, tells who sent them, and fails where some did not come.
pub(crate) fn run(crew: &mut Crew, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "  receiving")?;
    out.flush()?;
    for member in &mut crew.members {
        // They were posted before the group was joined.
        member.tally.begin(crew.depth);
    }
    let mut limit = arguments.timeout.0;
    while crew.members.iter().any(|member| !member.tally.is_complete()) {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let size = arguments.size;
        let is_in_time = crew.wait(deadline, |members, completion| {
            let own = completion.qp_num();
            let member = members.iter_mut().find(|member| member.qp.qp_number() == own);
            let length = completion.byte_len().saturating_sub(HEADROOM);
            if length != size {
                bail!("a message of {length} bytes came and {size} were due: give both sides the same --size (-S)");
            }
            member.context("a completion is of no queue pair of this program")?.tally.count(completion.src_qp());
            Ok(())
        })?;
        if !is_in_time {
            break;
        }
        limit = arguments.silence.0;
        for member in &mut crew.members {
            let count = member.tally.begin(crew.depth);
            if count > 0 {
                member.post_receives(&crew.memory, count)?;
            }
        }
    }
    let mut lost = 0;
    for member in &crew.members {
        writeln!(out, "  QPN {:#08x}: {}", member.qp.qp_number(), member.tally)?;
        lost += u64::from(member.tally.missing());
    }
    out.flush()?;
    verdict(lost, crew.members.iter().map(|member| u64::from(member.tally.counted())).sum(), arguments)
}

fn verdict(lost: u64, came: u64, arguments: &Arguments) -> Result<()> {
    let seconds = |limit: Option<std::time::Duration>| limit.unwrap_or_default().as_secs_f64();
    match (lost, came) {
        (0, _) => Ok(()),
        (_, 0) => bail!(
            "no message came within {} s (--timeout): has a sender joined the same group, and does the network carry it here?",
            seconds(arguments.timeout.0)
        ),
        _ => bail!(
            "{lost} of {} messages did not come, {} s after the last (--silence): they are lost, or were sent before this side had \
             joined; or the senders have a smaller --count (-C)",
            lost + came,
            seconds(arguments.silence.0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_did_not_come_is_told() {
        let arguments = Arguments::try_parse_from(["mckey", "-m", "239.1.2.3", "--timeout", "0.5"]).unwrap();
        verdict(0, 20, &arguments).unwrap();
        let error = verdict(20, 0, &arguments).unwrap_err().to_string();
        assert!(error.contains("no message came within 0.5 s"), "{error}");
        let error = verdict(3, 17, &arguments).unwrap_err().to_string();
        assert!(error.contains("3 of 20 messages did not come, 5 s after the last"), "{error}");
    }
}
