//! Tests with messages in the memory of a real GPU, on softrnic's device. If the machine has no GPU, the tests report
//! that they did not run, or fail with `STRIDE_TEST_CUDA=1`.

use std::io::Write;
use std::process::Output;

use stride_perf::endpoint::{GpuInfo, Gpus, gpus};

/// If this variable is 1, tests fail on a machine without a GPU.
const REQUIRED: &str = "STRIDE_TEST_CUDA";

/// Returns the GPUs. If there is none, reports that the test did not run, and the test ends.
fn found() -> Option<Vec<GpuInfo>> {
    let why = match gpus() {
        Gpus::Some(gpus) => return Some(gpus),
        Gpus::None(why) => why,
    };
    assert!(std::env::var(REQUIRED).as_deref() != Ok("1"), "{REQUIRED}=1, but {why}");
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // `eprintln!` is not used, because the test harness hides its output when a test passes.
    let _ = writeln!(std::io::stderr(), "DID NOT RUN: {name}: {why} ({REQUIRED}=1 makes this a failure)");
    None
}

fn run(words: &str) -> (Output, String, String) {
    let output = super::run(words);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    (output, out, err)
}

#[test]
fn every_operation_works_with_gpu_memory_on_either_side() {
    let Some(gpus) = found() else { return };
    let last = gpus.last().unwrap();
    for places in [
        "--use-cuda 0".to_owned(),
        format!("--remote-use-cuda {}", last.pci_address),
        format!("--use-cuda 0 --remote-use-cuda {}", last.index),
    ] {
        for words in [
            "write bw -n 200 -s 2,4K,1M",
            "write bw -n 200 -s 4K -q 3 --threads 2 -b",
            "write bw -n 200 -s 4K --imm",
            "read bw -n 200 -s 8,64K",
            "send bw -n 200 -s 64,4K",
            "send bw -n 200 -s 64,1K -c ud",
            "send lat -n 20 -s 64",
            "write lat -n 20 -s 64",
            "write lat -n 20 -s 64 --imm",
            "read lat -n 20 -s 64",
            "atomic bw -n 200",
            "atomic lat -n 20 --atomic cswap",
        ] {
            let words = format!("{words} -d soft0 --loopback --validate {places}");
            let (output, out, err) = run(&words);
            assert!(output.status.success(), "{words}: {out}\n{err}");
            assert!(out.contains("(peer memory)"), "{words}: {out}");
        }
    }
}

#[test]
fn requested_registration_method_is_used() {
    let Some(_) = found() else { return };
    let words = "write bw -d soft0 -n 100 --loopback --use-cuda 0 --remote-use-cuda 0 --gpu-registration address";
    let (output, out, err) = run(&format!("{words} --remote-gpu-registration address"));
    assert!(output.status.success() && out.contains("(peer memory)"), "{out}\n{err}");
    // softrnic does not support registration as a DMA buffer.
    let (output, out, err) = run(&format!("{words} --remote-gpu-registration dmabuf"));
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    assert!(err.contains("leave out --gpu-registration to try the other method"), "{err}");
}

#[test]
fn unsupported_gpu_use_is_an_error() {
    let Some(gpus) = found() else { return };
    for (words, sentence) in [
        (format!("write bw --use-cuda {}", gpus.len()), "no such GPU"),
        ("write lat --use-cuda 0 --latency oneway".to_owned(), "polls memory"),
        ("write bw --use-cuda 0 --remote-use-cuda 0 -s 1G -q 4096".to_owned(), "CUDA_ERROR_OUT_OF_MEMORY"),
    ] {
        let (output, out, err) = run(&format!("{words} -d soft0 -n 10 --loopback"));
        assert!(!output.status.success() && err.contains(sentence), "{words}: {out}\n{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn devices_lists_gpus() {
    let Some(gpus) = found() else { return };
    let (output, out, _) = run("devices");
    assert!(output.status.success());
    for GpuInfo { name, pci_address, .. } in &gpus {
        assert!(out.contains(name.as_str()) && out.contains(pci_address.as_str()), "{out}");
    }
}
