//! Types and constants of the C API, made by bindgen (see `generator/`), one file per header.
//!
//! C enums are newtypes with associated constants, so that a value which no header of this crate knows is still a legal
//! value. The layout of every type is asserted at compile time on the target that the files were made on.
#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unused_imports,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    reason = "generated code"
)]

#[rustfmt::skip]
pub mod efadv;
pub mod mlx5_wqe_ctrl_seg;
#[rustfmt::skip]
pub mod mlx5dv;
#[rustfmt::skip]
/// Only compared with the prototypes in `load/`, never called.
pub(crate) mod prototypes;
#[rustfmt::skip]
pub mod rdma_cma;
#[rustfmt::skip]
pub mod verbs;
