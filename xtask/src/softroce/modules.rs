//! The kernel modules of the guest, in load order.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A module that the guest requests by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    name: &'static str,
    /// Whether the guest needs the module. A kernel without an optional module is usable.
    required: bool,
}

const fn required(name: &'static str) -> Wanted {
    Wanted { name, required: true }
}

const fn optional(name: &'static str) -> Wanted {
    Wanted { name, required: false }
}

/// The modules that the guest requests; their dependencies come from `modules.dep`.
pub(crate) const WANTED: &[Wanted] = &[
    // rxe requests "crc32" by name from the crypto layer, so modules.dep does not list it; new kernels have it built
    // in.
    optional("crc32_generic"),
    optional("crc32_pclmul"),
    required("virtio_pci"),
    required("virtio_console"),
    required("9pnet_virtio"),
    required("9p"),
    required("overlay"),
    required("veth"),
    required("rdma_rxe"),
    required("ib_uverbs"),
    required("rdma_ucm"),
    // The kernel's software iWARP, and the checksum that it requests by name. If the kernel lacks it, `--siw` builds it.
    optional("crc32c_generic"),
    optional("crc32c_intel"),
    optional("libcrc32c"),
    optional("siw"),
    // For tests that lose packets on purpose: `tc qdisc add dev eth_a root netem loss 1%`.
    optional("sch_netem"),
];

/// One module of the load order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// The name without folder and suffixes, with `_` for `-`.
    pub(crate) name: String,
    /// The path below the modules' folder, such as `kernel/drivers/net/veth.ko.xz`.
    pub(crate) path: String,
    /// Whether the guest stops if this module does not load.
    pub(crate) required: bool,
}

/// The contents of `modules.dep` and `modules.builtin`.
#[derive(Debug)]
pub(crate) struct Index {
    modules: HashMap<String, (String, Vec<String>)>,
    builtin: HashSet<String>,
}

impl Index {
    /// Reads the two files in a folder such as `/lib/modules/6.1.0-13-amd64`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let file = folder.join(name);
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {} (depmod writes it)", file.display()))
        };
        Ok(Self::parse(&read("modules.dep")?, &read("modules.builtin").unwrap_or_default()))
    }

    fn parse(dep: &str, builtin: &str) -> Self {
        let modules = dep.lines().filter_map(|line| line.split_once(':')).map(|(path, needs)| {
            (module_name(path), (path.to_owned(), needs.split_whitespace().map(module_name).collect()))
        });
        Self { modules: modules.collect(), builtin: builtin.lines().map(module_name).collect() }
    }

    /// The modules to load for `wanted`, each after its dependencies and only once.
    ///
    /// # Errors
    ///
    /// Required modules are neither in the folder nor built into the kernel: the message names all of them.
    pub(crate) fn load_order(&self, wanted: &[Wanted]) -> Result<Vec<Module>> {
        let mut order = Vec::new();
        let mut absent = Vec::new();
        // Required modules come first, so that dependencies that they share with optional ones are required.
        for needed in [true, false] {
            for want in wanted.iter().filter(|want| want.required == needed) {
                if !self.visit(&module_name(want.name), want.required, &mut order) && want.required {
                    absent.push(want.name);
                }
            }
        }
        if !absent.is_empty() {
            bail!("this kernel has no module {}", absent.join(", "));
        }
        // The guest creates rxe_0 after all modules are loaded, so optional ones may come last.
        Ok(order)
    }

    /// Appends the module after its dependencies; `false` if the kernel lacks it.
    fn visit(&self, name: &str, required: bool, order: &mut Vec<Module>) -> bool {
        if self.builtin.contains(name) || order.iter().any(|module| module.name == name) {
            return true;
        }
        let Some((path, needs)) = self.modules.get(name) else { return false };
        for need in needs {
            if !self.visit(need, required, order) {
                return false;
            }
        }
        order.push(Module { name: name.to_owned(), path: path.clone(), required });
        true
    }
}

/// `kernel/arch/x86/crypto/crc32-pclmul.ko.xz` → `crc32_pclmul`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    stem.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/fscache/fscache.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko
kernel/fs/fscache/fscache.ko.xz: kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/arch/x86/crypto/crc32-pclmul.ko.zst:
kernel/broken.ko: kernel/gone.ko
";
    const BUILTIN: &str = "kernel/drivers/net/veth.ko\n";

    fn names(order: &[Module]) -> Vec<&str> {
        order.iter().map(|module| module.name.as_str()).collect()
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let order = Index::parse(DEP, BUILTIN).load_order(&[required("9p"), required("netfs")]).unwrap();
        assert_eq!(names(&order), ["netfs", "9pnet", "fscache", "9p"]);
        assert_eq!(order[2].path, "kernel/fs/fscache/fscache.ko.xz");
    }

    #[test]
    fn built_in_module_needs_no_file() {
        assert_eq!(Index::parse(DEP, BUILTIN).load_order(&[required("veth")]).unwrap(), []);
    }

    #[test]
    fn dashes_and_underscores_are_equal() {
        let order = Index::parse(DEP, BUILTIN).load_order(&[optional("crc32_pclmul")]).unwrap();
        assert_eq!(names(&order), ["crc32_pclmul"]);
        assert!(!order[0].required);
    }

    #[test]
    fn all_missing_required_modules_are_named() {
        let wanted = [required("rdma_rxe"), required("overlay"), optional("sch_netem"), optional("broken")];
        let error = Index::parse(DEP, BUILTIN).load_order(&wanted).unwrap_err().to_string();
        assert_eq!(error, "this kernel has no module rdma_rxe, overlay");
    }
}
