//! Tips for perftest's options that have another name in stride-perf, are not needed or are not supported.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What the user should do instead of giving an option of perftest.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// Use the option with this name.
    Named(&'static str),
    /// Omit the option, because it asks for the default.
    Needless(&'static str),
    /// Omit the option, because it is not supported.
    Missing(&'static str),
    /// The option is not supported for the first reason. Use the second text instead.
    Replaced(&'static str, &'static str),
}

use Here::{Missing, Named, Needless, Replaced};

/// The options of perftest, each with what the user should do instead.
const WORDS: &[(&[&str], Here)] = &[
    (&["--report_gbits"], Needless("the table has Gb/s")),
    (&["-F", "--CPU-freq"], Needless("no figure depends on the processor's frequency")),
    (&["-N", "--noPeak"], Needless("the peak comes from intervals, at no cost")),
    (&["--cpu_util"], Needless("the table shows the CPU share")),
    (&["--perform_warm_up"], Needless("a warm-up is the default; --warm-up 0 disables it")),
    (&["--report-per-port"], Needless("each port has a line below the total")),
    (&["-H", "--report-histogram", "--report-histogrm"], Needless("a test of one size prints a histogram")),
    (&["--use_old_post_send"], Needless("the interface that costs least is used")),
    (&["-U", "--report-unsorted"], Missing("samples are counted in a histogram and not kept")),
    (&["-C", "--report-cycles"], Missing("times are in microseconds")),
    (&["--report-both"], Missing("with -b, a row is the total of both directions")),
    (&["-o", "--outs"], Missing("both devices' limits on outstanding reads and atomics apply")),
    (&["-M", "--MGID", "-g", "--mcg"], Missing("multicast is not supported")),
    (&["--bind_source_ip"], Missing("the routing table selects the source address")),
    (&["--retry_count"], Missing("the retry count is 7, perftest's default")),
    (&["--output"], Missing("--json and --csv write every figure by name")),
    (&["-L", "--hop_limit"], Missing("the hop limit is 64")),
    (&["-X", "--vector"], Missing("threads use the completion vectors in turn")),
    (&["--inline_recv"], Missing("receives are not inline")),
    (&["--use-srq"], Missing("only xrc and dc use shared receive queues")),
    (&["--rate_limit_type", "--rate_units", "--typical_pkt_size"], Missing("--rate-limit works in software, in Gb/s")),
    (&["--dont_xchg_versions"], Missing("both sides must have the same protocol version")),
    (&["--force-link"], Missing("the port reports its link layer")),
    (&["--mmap", "--mmap-offset"], Missing("messages are in host or GPU memory")),
    (&["--wait_destroy"], Missing("resources are released at once")),
    (&["--log_dci_streams", "--log_active_dci_streams"], Missing("DC streams are not supported")),
    (
        &["--aes_xts", "--aes_block_size", "--encrypt_on_tx", "--sig_before", "--data_enc_keys_number", "--kek_path"],
        Missing("encryption is not supported"),
    ),
    (&["--credentials_path", "--data_enc_key_app_path"], Missing("encryption is not supported")),
    (&["-f", "--margin"], Named("--warm-up")),
    (
        &[
            "-B",
            "--source_mac",
            "-E",
            "--dest_mac",
            "-j",
            "--source_ip",
            "-J",
            "--dest_ip",
            "-K",
            "--dest_port",
            "-k",
            "--source_port",
            "-Y",
            "--ethertype",
            "-Z",
            "--server",
            "-P",
            "--client",
            "-v",
            "--mac_fwd",
            "-G",
            "--use_rss",
            "--remote_mac",
            "--local_mac",
            "--remote_ip",
            "--local_ip",
            "--remote_port",
            "--local_port",
            "--tcp",
            "--raw_ipv6",
            "--promiscuous",
            "--sniffer",
            "--raw_mcast",
            "--flows",
            "--flows_burst",
            "--reply_every",
            "--vlan_en",
            "--vlan_pcp",
        ],
        Missing("raw Ethernet is not supported"),
    ),
    (&["--connectionless"], Missing("multicast is not supported")),
    (&["--cuda_mem_type"], Missing("GPU memory is device memory")),
    (&["--use_cuda_pcie_mapping", "--use_data_direct"], Missing("--gpu-registration has dmabuf and address")),
    (&["--gpu_touch"], Replaced("no kernel runs on the GPU during a test", "run a program of the GPU beside it")),
    (
        &[
            "--use_musa",
            "--use_musa_bus_id",
            "--use_musa_dmabuf",
            "--use_musa_pcie_mapping",
            "--use_rocm",
            "--use_rocm_dmabuf",
            "--use_neuron",
            "--use_neuron_dmabuf",
            "--use_hl",
            "--use_mlu",
            "--use_mlu_dmabuf",
            "--use_opencl",
            "--opencl_platform_id",
        ],
        Missing("only GPUs with CUDA are supported"),
    ),
    (&["--use_ib_dm_dmabuf", "--use-null-mr"], Missing("messages are in host or GPU memory")),
    (&["--payload_file_path"], Missing("--validate fills messages with a pattern of its own")),
    (&["--data_validation_debug"], Missing("--validate prints the first wrong byte")),
    (&["--tph_mem", "--cpu_id", "--ph"], Missing("TLP processing hints are not supported")),
    (&["--sig_offload"], Missing("signature offload is not supported")),
    (&["--congest_type"], Missing("the administrator of a device selects the congestion control")),
    (&["--use_ooo", "--no_enhanced_reorder", "--unsolicited_write"], Missing("the driver's defaults apply")),
    (&["--no_lock"], Needless("the queues of a thread are its own")),
    (&["--cqe_poll", "--disable_dynamic_polling"], Needless("the loop takes all completions that are ready")),
    (&["--ipv6-addr"], Needless("the server's address may be IPv6; --ipv6 forces it")),
    (&["--data_validation"], Named("--validate, which compares after each size")),
    (&["--report-counters"], Named("--counters")),
    (&["--connection"], Named("--transport")),
    (&["--pin_cores"], Named("--cpu")),
    (&["--numa_node"], Named("--cpu, with the processors of that node, which also places the memory")),
    (&["-V", "--version"], Named("`stride-perf --version`")),
    (&["-A", "--atomic_type"], Named("--atomic fadd or cswap")),
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
        &["-z", "--com_rdma_cm", "--comm_rdma_cm", "--comm-rdma-cm"],
        Replaced("the control channel is TCP", "use an IPoIB address, and -R to connect queue pairs by rdma_cm"),
    ),
    (&["--post_list"], Named("--post-list")),
    (&["--recv_post_list"], Named("--recv-post-list")),
    (&["--rate_limit"], Named("--rate-limit, in Gb/s")),
    (&["--burst_size"], Named("--burst-size")),
    (&["--latency_gap"], Named("--gap")),
    (&["--mr_per_qp"], Named("--mr-per-qp")),
    (&["--flow_label"], Named("--flow-label, which takes one value")),
    (&["--pkey_index"], Named("--pkey-index")),
    (&["--use_hugepages"], Named("--huge-pages")),
    (&["--disable_pcie_relaxed"], Named("--no-relaxed-ordering")),
    (&["--write_with_imm", "--send_with_imm"], Named("--imm")),
    (&["--use_cuda", "--use_cuda_bus_id"], Named("--use-cuda")),
    (&["--use_cuda_dmabuf"], Named("--gpu-registration dmabuf")),
    (&["--disable_numa"], Named("--no-numa")),
];

/// Returns the tip for an option of perftest.
fn tip(word: &str) -> Option<String> {
    let (_, here) = WORDS.iter().find(|(words, _)| words.contains(&word))?;
    Some(match here {
        Named(name) => format!("perftest's option: use {name}"),
        Needless(why) => format!("perftest's option is not needed: {why}; leave it out"),
        Replaced(why, instead) => format!("perftest's option is not supported: {why}; {instead}"),
        Missing(why) => format!("perftest's option is not supported: {why}; leave it out"),
    })
}

/// Adds the tip to an error about an unknown option, and removes clap's suggestion to pass the option as a value.
pub(super) fn with_tip(error: Error, command: &Command) -> Error {
    let word = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let tip = tip(&word);
    let mut with_tip = Error::new(error.kind()).with_cmd(command);
    for (kind, value) in error.context() {
        let is_kept = match kind {
            ContextKind::Suggested => false,
            ContextKind::SuggestedArg | ContextKind::Usage => tip.is_none(),
            _ => true,
        };
        if is_kept {
            with_tip.insert(kind, value.clone());
        }
    }
    if let Some(tip) = tip {
        with_tip.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    with_tip
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::parse;

    fn error(words: &str) -> String {
        parse(format!("stride-perf {words} h").split_whitespace()).unwrap_err().to_string()
    }

    #[test]
    fn perftest_options_have_one_tip() {
        for (words, tip) in [
            ("write bw -N", " is not needed: the peak"),
            ("write bw --noPeak", " is not needed: the peak"),
            ("write bw --report_gbits", " is not needed: the table has Gb/s; leave it out"),
            ("write bw -T 106", ": use --tclass"),
            ("write bw --tos=106", ": use --tclass"),
            ("read bw -o 4", " is not supported: both devices"),
            ("write bw -w 5", ": use --min-gbps, in Gb/s"),
            ("write bw -y 3", ": use --min-mpps"),
            ("write bw --perform_warm_up", " is not needed: a warm-up"),
            ("write bw --cpu_util", " is not needed: the table shows the CPU share"),
            ("write bw --out_json", ": use --json FILE"),
            ("write bw --out_json_file=x.json", ": use --json FILE"),
            ("write bw --use_old_post_send", " is not needed"),
            ("write bw --report-both", " is not supported: with -b"),
            ("write bw --report-per-port", " is not needed: each port"),
            ("write lat -U", " is not supported"),
            ("write lat -V", ": use `stride-perf --version`"),
            ("write bw --bind_source_ip 192.0.2.1", " is not supported"),
            ("write bw --comm_rdma_cm", " is not supported: the control channel is TCP; use an IPoIB address"),
            ("write bw -z", " is not supported"),
            ("-z", " is not supported"),
            ("-F", " is not needed"),
            ("write bw --retry_count 3", " is not supported: the retry count is 7"),
            ("write bw -f 2", ": use --warm-up"),
            ("write bw --pin_cores 2", ": use --cpu"),
            ("write bw --version", ": use `stride-perf --version`"),
            ("atomic bw -A CMP_AND_SWAP", ": use --atomic fadd or cswap"),
            ("write bw --com_rdma_cm", " is not supported: the control channel is TCP"),
            ("write bw -L 5", " is not supported: the hop limit"),
            ("write bw --use-srq", " is not supported: only xrc and dc"),
            ("write bw --aes_xts", " is not supported: encryption"),
            ("write bw --numa_node 1", ": use --cpu, with the processors of that node"),
            ("write bw --data_validation", ": use --validate, which"),
            ("write bw --gpu_touch once", " is not supported: no kernel"),
            ("write bw --use_rocm 0", " is not supported: only GPUs with CUDA"),
            ("write bw -j 192.0.2.1", " is not supported: raw Ethernet"),
            ("write bw --flow_label 1,2", ": use --flow-label, which takes one value"),
            ("write bw --flows 4", " is not supported: raw Ethernet"),
        ] {
            let error = error(words);
            assert!(error.contains(&format!("tip: perftest's option{tip}")), "{words}: {error}");
            assert_eq!(error.matches("tip: ").count(), 1, "{words}: {error}");
            assert!(!error.contains("Usage:") && !error.contains("-- -"), "{words}: {error}");
        }
    }

    #[test]
    fn unknown_option_is_not_suggested_as_a_value() {
        for word in ["-@", "--nothing-like-it"] {
            let error = error(&format!("write bw {word}"));
            assert!(error.contains(&format!("unexpected argument '{word}'")) && error.contains("Usage:"), "{error}");
            assert!(!error.contains("as a value"), "{error}");
        }
        assert!(error("write bw --msg-sizes 4").contains("'--msg-size'"), "{}", error("write bw --msg-sizes 4"));
        assert!(error("write bw h").contains("unexpected argument 'h'"));
    }

    #[test]
    fn perftest_options_with_tips_do_not_exist_here() {
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

    /// The options that perftest's programs parse, with one line for each.
    const OPTIONS: &str = include_str!("perftest_options.txt");

    /// The options that exist here with another meaning.
    const MEANINGS: [(&str, &str); 1] =
        [("--ipv6", "another meaning: the control channel uses IPv6 only; -x selects an IPv6 GID")];

    /// Returns the page with all options of perftest.
    fn page() -> String {
        let mut command = <crate::cli::command::Program as clap::CommandFactory>::command();
        command.build();
        let tests = [["write", "bw"], ["send", "lat"]]
            .map(|path| path.into_iter().fold(&command, |command, word| command.find_subcommand(word).unwrap()));
        let is_here = |word: &str| {
            let is_it = |argument: &clap::Arg| match word.strip_prefix("--") {
                Some(long) => argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long)),
                None => argument.get_short().map(|short| format!("-{short}")).as_deref() == Some(word),
            };
            word == "-h" || word == "--help" || tests.iter().any(|test| test.get_arguments().any(is_it))
        };
        let answer = |word: &str| {
            if let Some((_, text)) = MEANINGS.iter().find(|(name, _)| *name == word) {
                return (*text).to_owned();
            }
            if is_here(word) {
                return "same".to_owned();
            }
            let tip = tip(word).unwrap_or_else(|| panic!("no tip for {word}"));
            tip.trim_start_matches("perftest's option")
                .trim_start_matches(": use ")
                .trim_start_matches(" is ")
                .replace("; leave it out", "")
        };
        let mut rows: Vec<_> = OPTIONS
            .lines()
            .map(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                let names: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                let answers: Vec<_> = words.iter().map(|word| answer(word)).collect();
                let text = if answers.windows(2).all(|pair| pair[0] == pair[1]) {
                    answers[0].clone()
                } else {
                    let each = names.iter().zip(&answers);
                    each.map(|(name, answer)| format!("{name}: {answer}")).collect::<Vec<_>>().join("; ")
                };
                (
                    words.last().map_or_else(String::new, |word| word.to_lowercase()),
                    format!("| {} | {text} |", names.join(" ")),
                )
            })
            .collect();
        rows.sort();
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        format!(
            "# Options of perftest\n\n\
             All options that the programs of perftest 6.29 parse (they share one parser; July 2026), and what stride-perf has instead. \
             stride-perf prints the same text if it receives the option. A test writes this page from \
             `src/cli/perftest.rs`: `STRIDE_WRITE_PAGE=1 cargo test -p stride-perf --lib perftest`.\n\n\
             | perftest | stride-perf |\n|---|---|\n{}\n",
            rows.join("\n")
        )
    }

    #[test]
    fn page_has_an_answer_to_every_option() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/PERFTEST.md");
        if std::env::var_os("STRIDE_WRITE_PAGE").is_some() {
            std::fs::write(file, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(file).unwrap(), page(), "run this test with STRIDE_WRITE_PAGE=1");
    }
}
