//! The output file of each header, and the origin of shared types.

use std::path::Path;

use anyhow::{Context, Result};
use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
use bindgen::{Builder, CodegenConfig, EnumVariation, Formatter, RustEdition, RustTarget};

use crate::{postprocess, version};

/// One file in `src/bindings`.
pub(crate) struct Output {
    /// The file's name.
    pub(crate) file: &'static str,
    /// The headers to include, relative to the include directory.
    include: &'static [&'static str],
    /// The headers, as regular expressions, whose items the file contains.
    own: &'static [&'static str],
    /// The items to keep, as regular expressions, with their dependencies; all if empty.
    keep: &'static [&'static str],
    /// The headers whose items another file contains.
    elsewhere: &'static [&'static str],
    /// `use` lines that import items of other files.
    uses: &'static [&'static str],
    /// Types and constants, or function prototypes.
    items: Items,
}

#[derive(PartialEq)]
enum Items {
    TypesAndConstants,
    Prototypes,
}

const VERBS: &[&str] = &[
    ".*/infiniband/verbs\\.h",
    ".*/infiniband/verbs_api\\.h",
    ".*/infiniband/ib_user_ioctl_verbs\\.h",
    ".*/infiniband/tm_types\\.h",
];
/// `verbs.rs` also holds `__u32`, `__be16` and the like.
const VERBS_AND_KERNEL_TYPES: &[&str] =
    &[VERBS[0], VERBS[1], VERBS[2], VERBS[3], ".*/linux/types\\.h", ".*/asm-generic/int-ll64\\.h"];
const RDMA_CMA: &[&str] = &[".*/rdma/rdma_cma\\.h", ".*/infiniband/sa\\.h", ".*/infiniband/ib\\.h"];
const MLX5DV: &[&str] =
    &[".*/infiniband/mlx5dv\\.h", ".*/infiniband/mlx5_api\\.h", ".*/infiniband/mlx5_user_ioctl_verbs\\.h"];
/// The functions of libmlx5 with their types and flags, and the segments of the ported inline functions. Items needed
/// only to write queue entries by hand are omitted: other segments, opcodes, syndromes.
const MLX5DV_KEPT: &[&str] = &[
    "mlx5dv_.*",
    "MLX5DV_.*",
    "mlx5_ib_uapi_.*",
    "MLX5_IB_UAPI_.*",
    "mlx5_cqe64",
    "mlx5_wqe_av",
    "mlx5_wqe_data_seg",
    "mlx5_wqe_datagram_seg",
    "mlx5_wqe_eth_seg",
];
const EFADV: &[&str] = &[".*/infiniband/efadv\\.h"];

/// All files, in writing order.
pub(crate) const OUTPUTS: &[Output] = &[
    Output {
        file: "verbs.rs",
        include: &["infiniband/verbs.h", "infiniband/tm_types.h"],
        own: VERBS,
        keep: &[],
        elsewhere: &[],
        uses: &[],
        items: Items::TypesAndConstants,
    },
    Output {
        file: "rdma_cma.rs",
        include: &["rdma/rdma_cma.h", "infiniband/ib.h"],
        own: RDMA_CMA,
        keep: &[],
        elsewhere: VERBS_AND_KERNEL_TYPES,
        uses: &["use super::verbs::*;"],
        items: Items::TypesAndConstants,
    },
    Output {
        file: "mlx5dv.rs",
        include: &["infiniband/mlx5dv.h"],
        own: MLX5DV,
        keep: MLX5DV_KEPT,
        elsewhere: VERBS_AND_KERNEL_TYPES,
        uses: &["use super::{mlx5_wqe_ctrl_seg::mlx5_wqe_ctrl_seg, verbs::*};"],
        items: Items::TypesAndConstants,
    },
    Output {
        file: "efadv.rs",
        include: &["infiniband/efadv.h"],
        own: EFADV,
        keep: &[],
        elsewhere: VERBS_AND_KERNEL_TYPES,
        uses: &["use super::verbs::*;"],
        items: Items::TypesAndConstants,
    },
    Output {
        file: "prototypes.rs",
        include: &[
            "infiniband/verbs.h",
            "rdma/rdma_cma.h",
            "rdma/rdma_verbs.h",
            "infiniband/mlx5dv.h",
            "infiniband/efadv.h",
        ],
        own: &[
            ".*/infiniband/verbs\\.h",
            ".*/rdma/rdma_cma\\.h",
            ".*/rdma/rdma_verbs\\.h",
            ".*/infiniband/mlx5dv\\.h",
            ".*/infiniband/efadv\\.h",
        ],
        keep: &[],
        elsewhere: &[],
        uses: &["use super::{efadv::*, mlx5dv::*, rdma_cma::*, verbs::*};"],
        items: Items::Prototypes,
    },
];

/// Types of the C library; the `libc` crate defines them for every target.
const FROM_LIBC: &[&str] = &[
    "pthread_.*",
    "__pthread_.*",
    "__atomic_wide_counter.*",
    "timespec",
    "__time_t",
    "__syscall_slong_t",
    "timeval",
    "sockaddr",
    "sockaddr_in",
    "sockaddr_in6",
    "sockaddr_storage",
    "sa_family_t",
    "in_addr",
    "in_addr_t",
    "in_port_t",
    "in6_addr.*",
    "socklen_t",
    "size_t",
    "ssize_t",
    "FILE",
    "_IO_.*",
];

/// Imported by name, because `libc` has its own `__u32`.
const USE_LIBC: &str = "use libc::{FILE, pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, \
                        sockaddr_storage, socklen_t, timespec};\n";

/// Treats types that another file or `libc` defines as plain C data, which can be copied.
#[derive(Debug)]
struct ElsewhereIsPlain;

impl ParseCallbacks for ElsewhereIsPlain {
    fn blocklisted_type_implements_trait(&self, _name: &str, derive_trait: DeriveTrait) -> Option<ImplementsTrait> {
        match derive_trait {
            DeriveTrait::Copy => Some(ImplementsTrait::Yes),
            _ => Some(ImplementsTrait::No),
        }
    }
}

impl Output {
    /// Generates the text of the file.
    pub(crate) fn generate(&self, include: &Path, release: &str) -> Result<String> {
        let source: String =
            self.include.iter().map(|header| format!("#include \"{}\"\n", include.join(header).display())).collect();
        let mut builder = Builder::default()
            .header_contents("wrapper.h", &source)
            .clang_arg(format!("-I{}", include.display()))
            .rust_target(rust_target())
            .rust_edition(RustEdition::Edition2024)
            .use_core()
            .ctypes_prefix("core::ffi")
            .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
            .constified_enum("_bindgen_ty_[0-9]+")
            .prepend_enum_name(false)
            .generate_comments(false)
            .layout_tests(true)
            .derive_debug(true)
            .derive_default(false)
            .merge_extern_blocks(true)
            .wrap_unsafe_ops(true)
            .formatter(Formatter::Prettyplease)
            .disable_header_comment()
            .allowlist_recursively(self.items == Items::TypesAndConstants)
            .with_codegen_config(match self.items {
                Items::TypesAndConstants => CodegenConfig::TYPES | CodegenConfig::VARS,
                Items::Prototypes => CodegenConfig::FUNCTIONS,
            });
        for pattern in self.own.iter().filter(|_| self.keep.is_empty()) {
            builder = builder.allowlist_file(pattern);
        }
        for pattern in self.keep {
            builder = builder.allowlist_item(pattern);
        }
        for pattern in self.elsewhere {
            builder = builder.blocklist_file(pattern);
        }
        builder = builder.parse_callbacks(Box::new(ElsewhereIsPlain));
        // This type is both packed and aligned, which `repr` cannot express, so it is written by hand.
        builder = builder.blocklist_type("mlx5_wqe_ctrl_seg");
        for pattern in FROM_LIBC {
            builder = builder.blocklist_type(pattern);
        }
        let generated =
            builder.generate().with_context(|| format!("bindgen of {} for {}", self.include.join(", "), self.file))?;

        let mark = version::MARK;
        let mut text = format!("{mark}{release}; do not edit.\n");
        text.push_str(USE_LIBC);
        for line in self.uses {
            text.push_str(line);
            text.push('\n');
        }
        text.push('\n');
        text.push_str(&postprocess::gate_layout_assertions(&generated.to_string()));
        Ok(text)
    }
}

/// The oldest compiler with edition 2024; the workspace requires a newer one.
fn rust_target() -> RustTarget {
    RustTarget::stable(85, 0).unwrap_or_default()
}
