//! The shape of every function of the device: it logs its arguments, fails if the script requires it, checks that its
//! object exists, and then does its own work.
//!
//! The contexts and objects that these functions receive are those of this provider, which are never freed: a use of a
//! destroyed object is a violation, and reads valid memory. What the manual page of a function requires of the other
//! arguments is required here as well, so attributes can be read, and outputs written.

use std::sync::MutexGuard;

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::ibv_dmah;

use super::calls::Kind;
use super::device::state_of;
use super::failure::{Failure, set_errno};
use super::state::Inner;
use super::values::{Answer, verb};

/// An object of the device, as C has it.
pub(super) trait Owned: Copy {
    /// The kind as which objects of this type are created.
    const KIND: Kind;
    /// The offset of the field with the context, unless this is a context.
    const CONTEXT: Option<usize>;

    fn start(self) -> *mut u8;
}

macro_rules! owned {
    ($($Type:ty $(, $part:ident)?: $Kind:ident;)*) => { $(
        impl Owned for *mut $Type {
            const KIND: Kind = Kind::$Kind;
            const CONTEXT: Option<usize> = Some(std::mem::offset_of!($Type, $($part.)? context));

            fn start(self) -> *mut u8 {
                self.cast()
            }
        }
    )* };
}
owned! {
    ffi::ibv_ah: AddressHandle;
    ffi::ibv_comp_channel: CompletionChannel;
    ffi::ibv_comp_cntr: CompletionCounter;
    ffi::ibv_counters: Counters;
    ffi::ibv_cq: CompletionQueue;
    ffi::ibv_cq_ex: CompletionQueue;
    ffi::ibv_dm: DeviceMemory;
    ffi::ibv_flow: Flow;
    ffi::ibv_flow_action: FlowAction;
    ffi::ibv_mr: MemoryRegion;
    ffi::ibv_mw: MemoryWindow;
    ffi::ibv_pd: ProtectionDomain;
    ffi::ibv_qp: QueuePair;
    ffi::ibv_qp_ex, qp_base: QueuePair;
    ffi::ibv_rwq_ind_table: IndirectionTable;
    ffi::ibv_srq: SharedReceiveQueue;
    ffi::ibv_td: ThreadDomain;
    ffi::ibv_wq: WorkQueue;
    ffi::ibv_xrcd: XrcDomain;
    ibv_dmah: DmaHandle;
}

impl Owned for *mut ffi::ibv_context {
    const KIND: Kind = Kind::Context;
    const CONTEXT: Option<usize> = None;

    fn start(self) -> *mut u8 {
        self.cast()
    }
}

/// A C struct of integers and nullable pointers, all zero, for the rest of the process. The memory comes from C's
/// allocator, so leak checks of Rust's memory ignore it.
pub(super) fn forever<T>() -> *mut T {
    // SAFETY: malloc returns memory that is aligned for every C struct.
    let object = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!object.is_null(), "out of memory");
    object.cast()
}

/// The context of an object.
///
/// # Safety
///
/// This is an object of this provider.
pub(super) unsafe fn context_of<T: Owned>(object: T) -> *mut ffi::ibv_context {
    match T::CONTEXT {
        // SAFETY: guaranteed by the caller, and this is the offset of the field.
        Some(field) => unsafe { object.start().add(field).cast::<*mut ffi::ibv_context>().read() },
        None => object.start().cast(),
    }
}

impl Inner {
    /// Creates an object, which keeps others alive.
    pub(super) fn create<T>(&mut self, context: *mut ffi::ibv_context, parents: &[usize]) -> *mut T
    where
        *mut T: Owned,
    {
        let object = forever::<T>();
        if let Some(field) = <*mut T>::CONTEXT {
            // SAFETY: the object is new, and this is the offset of the field.
            unsafe { object.byte_add(field).cast::<*mut ffi::ibv_context>().write(context) };
        }
        self.made(<*mut T>::KIND, object, parents);
        object
    }

    /// A call that the device refuses, besides those of the script.
    pub(super) fn refuse<R: Answer>(&mut self, verb: &str, errno: c_int) -> R {
        self.failed(errno);
        R::failed(verb, Failure::documented(errno))
    }
}

/// Begins a call of the C function `name`: logs it, and returns its result if it must fail.
///
/// # Safety
///
/// `object` is one of this provider's.
pub(super) unsafe fn begin<R: Answer>(
    name: &'static str,
    object: impl Owned,
    arguments: &[(&'static str, u64)],
) -> Result<MutexGuard<'static, Inner>, R> {
    let verb = verb(name);
    // SAFETY: guaranteed by the caller.
    let state = unsafe { state_of(context_of(object)) };
    let (inner, failure) = if R::CAN_FAIL { state.enter(verb, arguments) } else { (state.note(verb, arguments), None) };
    failure.map_or(Ok(inner), |failure| Err(R::failed(verb, failure)))
}

/// The result of a call on an object that does not exist.
pub(super) fn missing<R: Answer>(inner: &mut Inner, name: &'static str, object: impl Owned) -> Option<R> {
    let is_missing = R::CAN_FAIL && !inner.exists(object.start().addr(), verb(name));
    is_missing.then(|| inner.refuse(verb(name), libc::EINVAL))
}

/// The list of arguments of a call, as tests see it: `[name, …; @attributes: field, …; name = value, …; ..more]`.
macro_rules! arguments {
    ($($plain:ident),* $(; @ $from:ident: $($field:ident),+)* $(; $($key:ident = $value:expr),+)?) => {
        [
            $((stringify!($plain), $crate::recording::values::Argument::number($plain)),)*
            $($((stringify!($field), $crate::recording::values::Argument::number((*$from).$field)),)+)*
            $($((stringify!($key), $crate::recording::values::Argument::number($value)),)+)?
        ]
    };
    ($($plain:ident),* $(; @ $from:ident: $($field:ident),+)* $(; $($key:ident = $value:expr),+)?; ..$more:expr) => {{
        let first: &[(&'static str, u64)] =
            &$crate::recording::stub::arguments!($($plain),* $(; @ $from: $($field),+)* $(; $($key = $value),+)?);
        first.iter().copied().chain($more).collect::<Vec<_>>()
    }};
}

/// Functions of the device. `where` names the argument with the object, unless it is the first. The list has the
/// arguments to log, see [`arguments!`]. The block runs with the state of the device locked, unless the call fails
/// before.
macro_rules! stubs {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($first:ident: $First:ty $(, $arg:ident: $Type:ty)* $(,)?) -> $Result:ty
        $(where $object:ident)? [$($log:tt)*] |$inner:ident| $body:block
    )*) => { $(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $name($first: $First $(, $arg: $Type)*) -> $Result {
            // SAFETY: the module `stub` describes the objects and arguments.
            unsafe {
                let arguments = $crate::recording::stub::arguments!($($log)*);
                let _object = $first;
                $(let _object = $object;)?
                let begun = $crate::recording::stub::begin(stringify!($name), _object, &arguments);
                let mut $inner = match begun {
                    Ok(inner) => inner,
                    Err(result) => return result,
                };
                if let Some(result) = $crate::recording::stub::missing(&mut $inner, stringify!($name), _object) {
                    return result;
                }
                $body
            }
        }
    )* };
}

/// Functions that destroy an object, and what happens after a success.
macro_rules! endings {
    ($($name:ident($Type:ty) $(, |$context:pat_param, $object:ident| $after:block)?;)*) => { $(
        pub(super) unsafe extern "C" fn $name(object: *mut $Type) -> libc::c_int {
            // SAFETY: the module `stub` describes the objects.
            unsafe {
                let _context = $crate::recording::stub::context_of(object);
                let code = $crate::recording::stub::destroy(stringify!($name), object);
                $(if code == 0 {
                    let ($context, $object) = (_context, object);
                    $after
                })?
                code
            }
        }
    )* };
}

/// Sets functions of a table, except those that the script omits.
macro_rules! provide {
    ($table:expr, $has:expr; $($module:ident: $($name:ident)+;)+) => {
        $($( $table.$name = $has(stringify!($name)).then_some($module::$name); )+)+
    };
}

/// A function that gives a new object the functions that every driver has, and those that the program requests by
/// flags, except those that the script omits; the rest stays null, as with drivers.
macro_rules! requested {
    (
        $set:ident($Type:ty, $flags:ident): $($always:ident)*;
        $($field:ident $(of $part:ident)? if $Flag:ident;)*
    ) => {
        /// # Safety
        ///
        /// `object` is new.
        pub(super) unsafe fn $set(inner: &$crate::recording::state::Inner, object: *mut $Type, asked: u64) {
            let has = |name: &str| !inner.script.without.contains(name);
            let asked_for = |flag: u32| asked & u64::from(flag) != 0;
            // SAFETY: the object is new.
            unsafe {
                $( (*object).$always = has(stringify!($always)).then_some($always); )*
                $(
                    let given = asked_for(rdma_mummy_sys::$flags::$Flag.0) && has(stringify!($field));
                    (*object)$(.$part)?.$field = given.then_some($field);
                )*
            }
        }
    };
}

pub(super) use {arguments, endings, provide, requested, stubs};

/// Destroys an object.
///
/// # Safety
///
/// `object` is one of this provider's.
pub(super) unsafe fn destroy<T: Owned>(name: &'static str, object: T) -> c_int {
    let verb = verb(name);
    // SAFETY: guaranteed by the caller.
    let (mut inner, failure) =
        unsafe { state_of(context_of(object)) }.enter(verb, &[("object", object.start().addr() as u64)]);
    if let Some(failure) = failure {
        return Answer::failed(verb, failure);
    }
    match inner.destroy(T::KIND, object.start().addr()) {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            Answer::failed(verb, Failure::documented(errno))
        }
    }
}
