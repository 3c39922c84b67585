//! Tests of libcuda as the program finds it, on a machine with or without a GPU.

use std::fmt::Write;
use std::path::Path;

use sideway_tests::requirements::{c_compiler, may_not_run};
use stride_perf::endpoint::{Gpus, gpus};

use super::{ends, program, run};

/// The functions without which the program does not use a libcuda, except `cuInit` and `cuGetErrorName`.
const FUNCTIONS: &str = "cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetPCIBusId cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease_v2 cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxSynchronize cuMemAlloc_v2 cuMemFree_v2
    cuMemsetD8_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuPointerSetAttribute cuPointerGetAttributes cuStreamCreate
    cuStreamSynchronize cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeerAsync cuMemsetD8Async";

#[test]
fn machine_without_gpu_error_names_the_cause() {
    let (out, _) = ends(&run("devices"), 0);
    match gpus() {
        Gpus::None(why) => assert!(out.contains(&format!("no GPU: {why}")), "{out}"),
        Gpus::Some(_) => assert!(out.contains("PCI address"), "{out}"),
    }
    if !matches!(gpus(), Gpus::None(why) if why == "libcuda.so.1 is missing") {
        may_not_run("this machine has libcuda");
        return;
    }
    for (words, owner) in
        [("--use-cuda 0", ""), ("--use-cuda 0000:17:00.0", ""), ("--remote-use-cuda 1", "the server: ")]
    {
        let (_, err) = ends(&run(&format!("write bw -d soft0 --loopback {words}")), 1);
        let name = words.split(' ').next_back().unwrap();
        let sentence = format!("{owner}--use-cuda {name}: libcuda.so.1 is missing: install NVIDIA's driver");
        assert!(err.contains(&sentence), "{err}");
    }
}

/// Runs the program with a libcuda in C that has these functions. Returns the standard error.
fn run_with(name: &str, functions: &[&str]) -> Option<String> {
    let compiler = c_compiler()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut source = String::from(
        r#"
        unsigned cuInit(unsigned flags) { return flags ? 1 : 100; }
        unsigned cuGetErrorName(unsigned code, const char **name) {
            *name = "CUDA_ERROR_NO_DEVICE";
            return code == 100 ? 0 : 1;
        }
        "#,
    );
    for function in functions {
        writeln!(source, "unsigned {function}(void) {{ return 801; }}").unwrap();
    }
    compiler.shared_object(&folder, "cuda", &source, &[]).unwrap();
    let mut command = program("write bw -d soft0 --loopback --use-cuda 0");
    Some(ends(&command.env("LD_LIBRARY_PATH", folder).output().unwrap(), 1).1)
}

#[test]
fn driver_without_gpu_is_initialized_and_its_error_is_named() {
    let functions: Vec<&str> = FUNCTIONS.split_whitespace().collect();
    let Some(err) = run_with("libcuda-whole", &functions) else { return };
    assert!(err.contains("--use-cuda 0: cuInit: CUDA_ERROR_NO_DEVICE (100): check `nvidia-smi`"), "{err}");
}

#[test]
fn driver_that_lacks_a_function_is_too_old() {
    let functions: Vec<&str> = FUNCTIONS.split_whitespace().filter(|name| *name != "cuStreamCreate").collect();
    let Some(err) = run_with("libcuda-old", &functions) else { return };
    assert!(err.contains("libcuda.so.1 has no cuStreamCreate: install a newer NVIDIA driver"), "{err}");
}
