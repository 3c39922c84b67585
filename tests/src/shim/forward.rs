//! A function for each of softrnic's, generated from the prototype lists of `rdma-mummy-sys`.

use std::any::TypeId;
use std::sync::OnceLock;

use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::RdmacmTable;
use rdma_mummy_sys::since_v44::{IbverbsSinceV44, RdmacmSinceV44};

static BELOW: OnceLock<(IbverbsTable, RdmacmTable)> = OnceLock::new();

/// softrnic's functions.
pub(super) fn below() -> &'static (IbverbsTable, RdmacmTable) {
    BELOW.get().expect("the shim was registered")
}

/// The shim's tables over those of a provider.
pub(super) fn tables(provider: ProviderId) -> (IbverbsTable, RdmacmTable) {
    let rdmacm = provider.rdmacm().expect("softrnic serves connections");
    let (verbs, manager) = BELOW.get_or_init(|| (*provider.ibverbs(), *rdmacm));
    let mut ibverbs = ibverbs::over(verbs);
    ibverbs.since_v44 = ibverbs_since_v44::over(&verbs.since_v44);
    let mut rdmacm = rdmacm::over(manager);
    rdmacm.since_v44 = rdmacm_since_v44::over(&manager.since_v44);
    rdmacm.rdma_get_cm_event = Some(super::events::get_cm_event);
    rdmacm.rdma_ack_cm_event = Some(super::events::ack_cm_event);
    (ibverbs, rdmacm)
}

/// A type, as a constant can name it.
pub(super) type Type = fn() -> TypeId;

/// A C function.
pub(super) struct Prototype {
    pub(super) name: &'static str,
    arguments: &'static [Type],
    result: Type,
}

impl Prototype {
    /// Whether the function's first argument has this type.
    pub(super) fn takes(&self, first: Type) -> bool {
        self.arguments.first().is_some_and(|own| own() == first())
    }

    /// Whether the function returns this type.
    pub(super) fn returns(&self, result: Type) -> bool {
        (self.result)() == result()
    }
}

/// The C function that is logged under this name.
pub(super) fn prototype(verb: &str) -> Option<&'static Prototype> {
    prototypes().find(|prototype| crate::recording::verb(prototype.name) == verb)
}

/// A table inside the underlying one.
trait Part: 'static {
    fn below() -> &'static Self;
}

impl Part for IbverbsTable {
    fn below() -> &'static Self {
        &below().0
    }
}

impl Part for IbverbsSinceV44 {
    fn below() -> &'static Self {
        &below().0.since_v44
    }
}

impl Part for RdmacmTable {
    fn below() -> &'static Self {
        &below().1
    }
}

impl Part for RdmacmSinceV44 {
    fn below() -> &'static Self {
        &below().1.since_v44
    }
}

macro_rules! forward {
    (
        $Table:path, [$($module:ident)::+]
        $(fn $name:ident ($($argument:ident: $Type:ty),* $(,)?) -> $Result:ty;)*
    ) => {
        type Table = $Table;

        $(
            unsafe extern "C" fn $name($($argument: $Type),*) -> $Result {
                let arguments = [$((stringify!($argument), Argument::number($argument))),*];
                call(stringify!($name), &arguments, || {
                    let function = Table::below().$name.expect("the shim's table has this function only if softrnic has it");
                    // SAFETY: the caller keeps the contract of the C function, which is that of softrnic's.
                    unsafe { function($($argument),*) }
                })
            }
        )*

        pub(super) const PROTOTYPES: &[Prototype] = &[
            $(Prototype {
                name: stringify!($name),
                arguments: &[$(TypeId::of::<$Type>),*],
                result: TypeId::of::<$Result>,
            }),*
        ];

        /// The functions of the underlying table.
        pub(super) fn over(below: &Table) -> Table {
            let mut table = *below;
            $(
                if table.$name.is_some() {
                    table.$name = Some($name);
                }
            )*
            table
        }
    };
}
pub(crate) use forward;

/// The types in the prototypes.
mod types {
    pub(super) use core::ffi::{c_char, c_int, c_uint, c_void};

    pub(super) use libc::sockaddr;
    pub(super) use rdma_mummy_sys::bindings::rdma_cma::*;
    pub(super) use rdma_mummy_sys::bindings::verbs::*;
    pub(super) use rdma_mummy_sys::since_v44::*;
}

/// A module for each list.
macro_rules! lists {
    ($($module:ident: $list:ident, $Table:ident;)*) => {
        /// All C functions that the shim has.
        pub(super) fn prototypes() -> impl Iterator<Item = &'static Prototype> {
            [$($module::PROTOTYPES),*].into_iter().flatten()
        }

        $(
            mod $module {
                use std::any::TypeId;

                use super::types::*;
                use super::{Part, Prototype, $Table};
                use crate::recording::Argument;
                use crate::shim::state::call;

                rdma_mummy_sys::$list!(crate::shim::forward::forward, $Table);
            }
        )*
    };
}
lists! {
    ibverbs: ibverbs_functions, IbverbsTable;
    ibverbs_since_v44: ibverbs_since_v44_functions, IbverbsSinceV44;
    rdmacm: rdmacm_functions, RdmacmTable;
    rdmacm_since_v44: rdmacm_since_v44_functions, RdmacmSinceV44;
}
