//! Options of perftest that are called otherwise here, that nothing needs, or that are not there.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What becomes of an option of perftest.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// It has another name.
    Named(&'static str),
    /// It is done, or said, without.
    Needless(&'static str),
    /// There is nothing like it.
    Missing(&'static str),
    /// There is nothing like it: why, and what serves instead.
    Replaced(&'static str, &'static str),
}

use Here::{Missing, Named, Needless, Replaced};

/// The words of perftest, and what to do with each.
const WORDS: [(&[&str], Here); 46] = [
    (&["--report_gbits"], Needless("the table has Gb/s")),
    (&["-F", "--CPU-freq"], Needless("no time is reckoned by the frequency of processors")),
    (&["-N", "--noPeak"], Needless("a peak costs nothing here, as it is taken from intervals")),
    (&["--cpu_util"], Needless("the table has the share of a processor")),
    (&["--perform_warm_up"], Needless("there is a warm-up, unless --warm-up 0 leaves it out")),
    (&["--report-per-port"], Needless("each port has a line below the row of all")),
    (&["-H", "--report-histogram"], Needless("a histogram stands below the table of one size")),
    (&["--use_old_post_send"], Needless("requests are posted as the device has it")),
    (
        &["-U", "--report-unsorted"],
        Missing("samples are counted, not kept: the histogram and the percentiles are of all of them"),
    ),
    (&["-C", "--report-cycles"], Missing("times are in microseconds")),
    (&["--report-both"], Missing("with -b a row is of both ways together")),
    (&["-o", "--outs"], Missing("as many reads and atomics are under way as both devices can have")),
    (&["-M", "--MGID", "-g", "--mcg"], Missing("there is no multicast")),
    (&["--bind_source_ip", "--source_ip"], Missing("the system chooses the address by the way to the server")),
    (&["--retry_count"], Missing("a device tries again 7 times, as with perftest where nobody says otherwise")),
    (&["--output"], Missing("--json and --csv have each figure under its name")),
    (&["-f", "--margin"], Named("--warm-up")),
    (&["--pin_cores"], Named("--cpu")),
    (&["--numa_node"], Named("--cpu, with the processors of that node")),
    (&["-V"], Named("`stride-perf --version`")),
    (&["-T", "--tos"], Named("--tclass")),
    (&["-w", "--limit_bw"], Named("--min-gbps, in Gb/s")),
    (&["-y", "--limit_msgrate"], Named("--min-mpps")),
    (&["--out_json", "--out_json_file"], Named("--json FILE")),
    (&["--inline_size"], Named("--inline")),
    (&["--size"], Named("--msg-size")),
    (&["--all"], Named("--all-sizes")),
    (&["--ib-dev"], Named("--device")),
    (&["--qp"], Named("--qp-count")),
    (&["--run_infinitely"], Named("--run-infinitely")),
    (&["--rdma_cm"], Named("--rdma-cm")),
    (
        &["-z", "--comm_rdma_cm", "--comm-rdma-cm"],
        Replaced("the control channel is TCP", "use an IPoIB address, and -R to connect queue pairs by rdma_cm"),
    ),
    (&["--post_list"], Named("--post-list")),
    (&["--recv_post_list"], Named("--recv-post-list")),
    (&["--rate_limit"], Named("--rate-limit, in Gb/s")),
    (&["--burst_size"], Named("--burst-size")),
    (&["--latency_gap"], Named("--gap")),
    (&["--mr_per_qp"], Named("--mr-per-qp")),
    (&["--flow_label"], Named("--flow-label")),
    (&["--pkey_index"], Named("--pkey-index")),
    (&["--use_hugepages"], Named("--huge-pages")),
    (&["--disable_pcie_relaxed"], Named("--no-relaxed-ordering")),
    (&["--write_with_imm", "--send_with_imm"], Named("--imm")),
    (&["--use_cuda", "--use_cuda_bus_id"], Named("--use-cuda")),
    (&["--use_cuda_dmabuf"], Named("--gpu-registration dmabuf")),
    (&["--disable_numa"], Named("--no-numa")),
];

/// What is said of a word of perftest, where it is one.
fn tip(word: &str) -> Option<String> {
    let (_, here) = WORDS.iter().find(|(words, _)| words.contains(&word))?;
    Some(match here {
        Named(name) => format!("of perftest's options, this one is {name} here"),
        Needless(why) => format!("of perftest's options, this one is not needed: {why}, leave it out"),
        Replaced(why, instead) => format!("of perftest's options, this one is not supported: {why}; {instead}"),
        Missing(why) => format!("of perftest's options, this one is not here: {why}, leave it out"),
    })
}

/// An error of an option that is not there, with what helps in place of what does not: what begins with a dash is no value.
pub(super) fn told(error: Error, command: &Command) -> Error {
    let word = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let tip = tip(&word);
    let mut told = Error::new(error.kind()).with_cmd(command);
    for (kind, value) in error.context() {
        let is_kept = match kind {
            ContextKind::Suggested => false,
            ContextKind::SuggestedArg | ContextKind::Usage => tip.is_none(),
            _ => true,
        };
        if is_kept {
            told.insert(kind, value.clone());
        }
    }
    if let Some(tip) = tip {
        told.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::parse;

    fn said(words: &str) -> String {
        parse(format!("stride-perf {words} h").split_whitespace()).unwrap_err().to_string()
    }

    #[test]
    fn options_of_perftest_are_known_by_one_tip() {
        for (words, tip) in [
            ("write bw -N", "this one is not needed: a peak"),
            ("write bw --noPeak", "this one is not needed: a peak"),
            ("write bw --report_gbits", "this one is not needed: the table has Gb/s, leave it out"),
            ("write bw -T 106", "this one is --tclass here"),
            ("write bw --tos=106", "this one is --tclass here"),
            ("read bw -o 4", "this one is not here: as many reads"),
            ("write bw -w 5", "this one is --min-gbps, in Gb/s here"),
            ("write bw -y 3", "this one is --min-mpps here"),
            ("write bw --perform_warm_up", "this one is not needed: there is a warm-up"),
            ("write bw --cpu_util", "this one is not needed: the table has the share"),
            ("write bw --out_json", "this one is --json FILE here"),
            ("write bw --out_json_file=x.json", "this one is --json FILE here"),
            ("write bw --use_old_post_send", "this one is not needed"),
            ("write bw --report-both", "this one is not here: with -b"),
            ("write bw --report-per-port", "this one is not needed: each port"),
            ("write lat -U", "this one is not here"),
            ("write lat -V", "this one is `stride-perf --version` here"),
            ("write bw --bind_source_ip 192.0.2.1", "this one is not here"),
            ("write bw --comm_rdma_cm", "this one is not supported: the control channel is TCP; use an IPoIB address"),
            ("write bw -z", "this one is not supported"),
            ("-z", "this one is not supported"),
            ("-F", "this one is not needed"),
            ("write bw --retry_count 3", "this one is not here: a device tries again 7 times"),
            ("write bw -f 2", "this one is --warm-up here"),
            ("write bw --pin_cores 2", "this one is --cpu here"),
        ] {
            let said = said(words);
            assert!(said.contains(&format!("tip: of perftest's options, {tip}")), "{words}: {said}");
            assert_eq!(said.matches("tip: ").count(), 1, "{words}: {said}");
            assert!(!said.contains("Usage:") && !said.contains("-- -"), "{words}: {said}");
        }
    }

    #[test]
    fn what_nobody_knows_is_not_said_to_be_a_value() {
        for word in ["-J", "--nothing-like-it"] {
            let said = said(&format!("write bw {word}"));
            assert!(said.contains(&format!("unexpected argument '{word}'")) && said.contains("Usage:"), "{said}");
            assert!(!said.contains("as a value"), "{said}");
        }
        assert!(said("write bw --msg-sizes 4").contains("'--msg-size'"), "{}", said("write bw --msg-sizes 4"));
        assert!(said("write bw h").contains("unexpected argument 'h'"));
    }

    #[test]
    fn words_of_perftest_are_none_of_this_program() {
        let mut command = <crate::cli::command::Program as clap::CommandFactory>::command();
        command.build();
        let mut all = BTreeSet::new();
        for word in WORDS.iter().flat_map(|(words, _)| words.iter()) {
            assert!(all.insert(*word), "{word} stands there twice");
            for path in [["write", "bw"], ["send", "lat"]] {
                let test = path.into_iter().fold(&command, |command, word| command.find_subcommand(word).unwrap());
                let is_it = |argument: &clap::Arg| match word.strip_prefix("--") {
                    Some(long) => argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long)),
                    None => argument.get_short().map(|short| format!("-{short}")).as_deref() == Some(*word),
                };
                assert!(!test.get_arguments().any(is_it), "{word} of {path:?}");
            }
        }
    }
}
