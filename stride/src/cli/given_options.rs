//! Collects the options that the user gave, and warns of options that have no effect.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::plan::{Given, Plan, RunLength, Transport, time};

/// Returns a warning for each option of this list that the user gave. The option has no effect, for the reason in
/// `context`.
pub(super) fn without_effect(given: &Given, options: &[&str], context: &str) -> Vec<String> {
    let there = options.iter().filter(|option| given.has(&[option]));
    there.map(|option| format!("{option} has no effect for {context}")).collect()
}

/// Returns a warning for each option that the user gave and that has no effect in this plan.
pub(super) fn without_effect_in(plan: &Plan, given: &Given) -> Vec<String> {
    let mut all = Vec::new();
    if !plan.workload.operation.takes_receive() {
        all.extend(without_effect(
            given,
            &["--rx-depth"],
            &format!("{}, which consumes no receives", plan.workload.operation),
        ));
    }
    if matches!(plan.attributes.transport, Transport::Uc | Transport::Ud) {
        all.extend(without_effect(
            given,
            &["--qp-timeout"],
            &format!("{}, which does not retransmit", plan.attributes.transport),
        ));
    }
    if plan.attributes.transport == Transport::Srd {
        all.extend(without_effect(given, &["--qp-timeout"], "SRD, whose device controls retransmission"));
    }
    if plan.polls_memory() {
        let context = "a latency that polls memory, which always uses strict ordering";
        all.extend(without_effect(given, &["--no-relaxed-ordering"], context));
    }
    if let (RunLength::Time { time, .. }, Some(interval), false) =
        (plan.workload.amount, plan.sampling.interval, plan.workload.is_endless)
        && interval >= time
    {
        all.extend(without_effect(
            given,
            &["--interval"],
            &format!("a test of {}, which is shorter than two intervals of {}", time::show(time), time::show(interval)),
        ));
    }
    for (option, config) in [("--cpu", &plan.placement.client), ("--remote-cpu", &plan.placement.server)] {
        let count = config.cpus.as_deref().map_or(0, <[u32]>::len);
        if count > 0 && count < plan.queues.threads as usize && given.has(&[option]) {
            all.push(format!(
                "{option} names {count} of the {} processors that --threads can use",
                plan.queues.threads
            ));
        }
    }
    all
}

/// Returns the long names of all options that the user gave, including those of subcommands.
pub(super) fn given(mut command: &Command, mut matches: &ArgMatches) -> Given {
    let mut names = Vec::new();
    loop {
        let stands = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let options = command.get_arguments().filter(|option| matches.ids().any(|id| id == option.get_id()));
        let options = options.filter(|option| stands(option.get_id().as_str()));
        names.extend(options.filter_map(|option| option.get_long()).map(|long| format!("--{long}")));
        let Some((name, below)) = matches.subcommand() else { break };
        let Some(next) = command.find_subcommand(name) else { break };
        (command, matches) = (next, below);
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use crate::cli::{Job, parse};

    fn warnings(words: &str) -> Vec<String> {
        match parse(format!("stride-perf {words} h").split_whitespace()) {
            Ok(Job::Measure(measurement)) => measurement.warnings,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn option_without_effect_causes_a_warning() {
        for (words, warning) in [
            ("write bw -r 64", "--rx-depth has no effect for write, which consumes no receives"),
            ("atomic bw -r 64", "--rx-depth has no effect for fetch-and-add, which consumes no receives"),
            ("send bw -c ud -u 14", "--qp-timeout has no effect for UD, which does not retransmit"),
            ("send bw -c srd -u 14", "--qp-timeout has no effect for SRD, whose device controls retransmission"),
            (
                "write lat --no-relaxed-ordering",
                "--no-relaxed-ordering has no effect for a latency that polls memory, which always uses strict ordering",
            ),
            (
                "write bw --interval 2s -D 1s",
                "--interval has no effect for a test of 1s, which is shorter than two intervals of 2s",
            ),
            ("write bw --threads 4 --cpu 0", "--cpu names 1 of the 4 processors that --threads can use"),
        ] {
            assert_eq!(warnings(words), [warning], "{words}");
        }
    }

    #[test]
    fn option_with_effect_causes_no_warning() {
        for words in [
            "send bw -r 64",
            "write bw --imm -r 64",
            "write bw -u 14",
            "write lat --latency ack --no-relaxed-ordering",
            "write bw --interval 500ms -D 1s",
            "write bw --interval 2s -D forever",
            "write bw --threads 2 --cpu 0,1",
        ] {
            assert_eq!(warnings(words), [""; 0], "{words}");
        }
    }
}
