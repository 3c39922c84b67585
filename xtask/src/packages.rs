//! Distribution packages that the tasks need: one place that checks, names all that is missing, and installs it on
//! request.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

use crate::progress::Step;

/// A thing that a task needs, its Debian and Ubuntu package, and how to detect it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The package's name on Debian and Ubuntu.
    pub(crate) package: &'static str,
    found_by: Found,
}

#[derive(Clone, Copy, Debug)]
enum Found {
    /// A program of this name in `PATH`, or in the folders for administrators, which a user's `PATH` often lacks.
    Program(&'static str),
    /// A statically linked busybox.
    StaticBusybox,
    /// Any of these files.
    File(&'static [&'static str]),
    /// A shared library of this file name, in one of the usual folders.
    Library(&'static str),
}

const fn program(package: &'static str, name: &'static str) -> Need {
    Need { package, found_by: Found::Program(name) }
}

/// Booting the guest, creating `rxe_0` in it, and inspecting it with the distribution's tools.
pub(crate) const SOFTROCE: &[Need] = &[
    program("qemu-system-x86", "qemu-system-x86_64"),
    Need { package: "busybox-static", found_by: Found::StaticBusybox },
    program("kmod", "depmod"),
    // With this program, Debian's kernels boot in 3 seconds instead of 5.
    program("xz-utils", "xz"),
    program("iproute2", "ip"),
    program("iproute2", "rdma"),
    Need { package: "libibverbs1", found_by: Found::Library("libibverbs.so.1") },
    Need { package: "librdmacm1", found_by: Found::Library("librdmacm.so.1") },
    Need { package: "ibverbs-providers", found_by: Found::File(&["/etc/libibverbs.d/rxe.driver"]) },
    program("ibverbs-utils", "ibv_devinfo"),
];

/// Building a kernel module.
pub(crate) const MODULE: &[Need] = &[program("gcc", "gcc"), program("make", "make"), program("binutils", "strip")];

/// Programs that the tests of the softroce ring compare with.
pub(crate) const SOFTROCE_TESTS: &[Need] = &[
    program("rdmacm-utils", "rping"),
    program("perftest", "ib_write_bw"),
    program("ucx-utils", "ucx_perftest"),
    program("valgrind", "valgrind"),
];

/// Linking softrnic's libraries for C programs.
pub(crate) const LINKING: &[Need] =
    &[program("gcc", "cc"), Need { package: "libc6-dev", found_by: Found::File(&["/usr/include/stdio.h"]) }];

/// Packing what users install.
pub(crate) const PACKING: &[Need] = &[program("binutils", "objdump"), program("tar", "tar"), program("gzip", "gzip")];

/// Linking programs of 32 bits on x86-64.
pub(crate) const LINKING_32_BITS: &[Need] =
    &[program("gcc", "cc"), Need { package: "gcc-multilib", found_by: Found::File(&["/usr/lib32/crt1.o"]) }];

/// Compiling C and C++ programs against the distribution's headers, and inspecting the results.
pub(crate) const C_EXAMPLES: &[Need] = &[
    program("gcc", "cc"),
    program("g++", "c++"),
    program("binutils", "readelf"),
    program("pkg-config", "pkg-config"),
    Need { package: "libc6-dev", found_by: Found::File(&["/usr/include/stdio.h"]) },
    Need { package: "libibverbs-dev", found_by: Found::File(&["/usr/include/infiniband/verbs.h"]) },
    Need { package: "librdmacm-dev", found_by: Found::File(&["/usr/include/rdma/rdma_cma.h"]) },
];

/// The programs that run on softrnic, and compiling our own.
pub(crate) const PROGRAMS: &[Need] = &[
    program("ibverbs-utils", "ibv_devinfo"),
    program("rdmacm-utils", "rping"),
    program("perftest", "ib_write_bw"),
    program("libfabric-bin", "fi_pingpong"),
    program("ucx-utils", "ucx_perftest"),
    program("openmpi-bin", "mpirun"),
    Need { package: "libopenmpi-dev", found_by: Found::Library("openmpi/include/mpi.h") },
    program("qperf", "qperf"),
    program("fio", "fio"),
    program("dapl2-utils", "dapltest"),
    program("iperf", "iperf"),
    program("netpipe-mpich2", "NPmpich2"),
    program("mpich", "mpiexec.mpich"),
    program("infiniband-diags", "ibstat"),
    Need { package: "python3-pyverbs", found_by: Found::File(&["/usr/lib/python3/dist-packages/pyverbs/__init__.py"]) },
    program("python3-pip", "pip3"),
    Need { package: "libgloo-dev", found_by: Found::File(&["/usr/include/gloo/allreduce.h"]) },
    program("qemu-system-x86", "qemu-system-x86_64"),
    program("tgt", "tgtd"),
    program("libiscsi-bin", "iscsi-test-cu"),
    program("nginx-light", "nginx"),
    program("redis-server", "redis-server"),
    program("iperf3", "iperf3"),
    program("curl", "curl"),
    program("g++", "c++"),
    program("valgrind", "valgrind"),
    program("gcc", "cc"),
    Need { package: "libc6-dev", found_by: Found::File(&["/usr/include/stdio.h"]) },
    Need { package: "libibverbs-dev", found_by: Found::File(&["/usr/include/infiniband/verbs.h"]) },
    Need { package: "librdmacm-dev", found_by: Found::File(&["/usr/include/rdma/rdma_cma.h"]) },
];

/// The programs that the documents start.
pub(crate) const README: &[Need] = &[program("iperf3", "iperf3"), program("ibverbs-utils", "ibv_devinfo")];

/// Compiling the headers' inline functions in C, to compare the Rust ports with them.
pub(crate) const C_TESTS: &[Need] = &[
    program("gcc", "cc"),
    program("pkg-config", "pkg-config"),
    Need { package: "libc6-dev", found_by: Found::File(&["/usr/include/stdio.h"]) },
    Need { package: "libibverbs-dev", found_by: Found::File(&["/usr/include/infiniband/verbs.h"]) },
    Need { package: "librdmacm-dev", found_by: Found::File(&["/usr/include/rdma/rdma_cma.h"]) },
];

/// Counting instructions.
pub(crate) const COST: &[Need] = &[program("valgrind", "valgrind")];

/// Reading the frames of softrnic's iWARP device.
pub(crate) const DISSECTING: &[Need] = &[program("tshark", "tshark")];

/// Opening the page of `stride-perf report`.
pub(crate) const BROWSER: &[Need] = &[program("chromium", "chromium"), program("chromium-driver", "chromedriver")];

/// Running bindgen on the headers, and reading their version.
pub(crate) const BINDINGS: &[Need] = &[
    program("pkg-config", "pkg-config"),
    // The file without a version belongs to the package with the compiler's headers, which bindgen also needs.
    Need { package: "libclang-dev", found_by: Found::Library("libclang.so") },
    Need { package: "libibverbs-dev", found_by: Found::File(&["/usr/include/infiniband/verbs.h"]) },
    Need { package: "librdmacm-dev", found_by: Found::File(&["/usr/include/rdma/rdma_cma.h"]) },
    Need { package: "libc6-dev", found_by: Found::File(&["/usr/include/stdio.h"]) },
];

/// Unpacking the modules of Ubuntu.
pub(crate) const ZSTD: &[Need] = &[program("zstd", "zstd")];

/// Whether this run may install packages and toolchains: with `--install` or `CI=true`, on Debian and Ubuntu, as root
/// or as a user with password-less sudo.
pub(crate) fn may_install() -> bool {
    (in_ci() || INSTALL.load(Ordering::Relaxed)) && is_debian() && installer().is_some()
}

/// Allows this run to install, as `--install` does.
pub(crate) fn allow_install() {
    INSTALL.store(true, Ordering::Relaxed);
}

static INSTALL: AtomicBool = AtomicBool::new(false);

/// Ensures that all of `needs` is installed. Installs what is missing if [`may_install`] allows it; otherwise the error
/// names everything that is missing.
///
/// # Errors
///
/// A package is missing and may not, or could not, be installed. The message has the command that installs it.
pub(crate) fn require(purpose: &str, needs: &[&[Need]]) -> Result<()> {
    let absent = missing(needs);
    if absent.is_empty() {
        return Ok(());
    }
    if !may_install() {
        bail!("{}", advice(purpose, &absent));
    }
    apt_install(&absent)?;
    let still = missing(needs);
    if !still.is_empty() {
        bail!("{} installed, but still not found: {}", join(&absent), join(&still));
    }
    Ok(())
}

/// The missing packages of `needs`, each once.
pub(crate) fn missing(needs: &[&[Need]]) -> BTreeSet<&'static str> {
    needs.iter().copied().flatten().filter(|need| !need.is_there()).map(|need| need.package).collect()
}

/// The path of a program, from `PATH` and then from the folders for administrators.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Whether the packages are Debian's: Debian itself, Ubuntu, and what derives from them.
pub(crate) fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists() && find_program("apt-get").is_some() && find_program("dpkg").is_some()
}

/// Whether the environment marks this run as continuous integration.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Whether this program runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes no arguments, accesses no memory of ours and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

impl Need {
    fn is_there(&self) -> bool {
        match self.found_by {
            Found::Program(name) => find_program(name).is_some(),
            Found::StaticBusybox => static_busybox().is_some(),
            Found::File(files) => files.iter().any(|file| Path::new(file).exists()),
            Found::Library(name) => library_folders().iter().any(|folder| folder.join(name).exists()),
        }
    }
}

/// The busybox that can run in an initial RAM disk by itself.
pub(crate) fn static_busybox() -> Option<PathBuf> {
    let loader = b"/ld-"; // a program that needs shared libraries names the loader, such as /lib64/ld-linux-x86-64.so.2
    ["busybox", "busybox.static", "busybox-static"].iter().filter_map(|name| find_program(name)).find(|file| {
        std::fs::read(file).is_ok_and(|bytes| {
            let head = &bytes[..bytes.len().min(4096)];
            head.starts_with(b"\x7fELF") && !head.windows(loader.len()).any(|window| window == loader)
        })
    })
}

fn library_folders() -> Vec<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut folders: Vec<PathBuf> =
        [multiarch.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"].iter().map(PathBuf::from).collect();
    folders.extend(std::env::var_os("LIBCLANG_PATH").map(PathBuf::from));
    // Debian keeps libclang in a folder for each version of LLVM.
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders.extend(
        versions
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
            .map(|entry| entry.path().join("lib")),
    );
    folders
}

fn advice(purpose: &str, absent: &BTreeSet<&'static str>) -> String {
    let names = join(absent);
    if is_debian() {
        format!(
            "{purpose} needs packages that are not installed: {names}\n  \
             sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}"
        )
    } else {
        format!(
            "{purpose} needs what Debian and Ubuntu ship in these packages: {names}\n  Install your distribution's \
             equivalents, and run this again."
        )
    }
}

fn join(names: &BTreeSet<&'static str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(" ")
}

/// The command prefix that allows an installation: none for root, `sudo -n` for a user with password-less sudo.
fn installer() -> Option<Vec<&'static str>> {
    if is_root() {
        return Some(Vec::new());
    }
    let asks_nothing = Command::new("sudo").args(["-n", "true"]).output().is_ok_and(|output| output.status.success());
    asks_nothing.then(|| vec!["sudo", "-n"])
}

/// Updates apt's lists, if this run may.
pub(crate) fn apt_update() -> Result<()> {
    apt(&["update"])
}

fn apt_install(names: &BTreeSet<&'static str>) -> Result<()> {
    let step = Step::start(format!("installing {}", join(names)));
    apt_update()?;
    let mut words = vec!["install", "-y", "--no-install-recommends"];
    words.extend(names);
    apt(&words)?;
    step.done();
    Ok(())
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut words = installer().context("only root can install packages")?;
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]);
    words.extend(arguments);
    let output = Command::new(words[0]).args(&words[1..]).output().context("cannot run apt-get")?;
    if !output.status.success() {
        bail!(
            "`apt-get {}` ended with {}:\n{}{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_all_missing_packages() {
        let text = advice("this", &BTreeSet::from(["a", "b"]));
        assert!(text.contains("a b"), "{text}");
    }
}
