//! From one C prototype a line: the table of a library, its filling, and the functions that a program calls.
//!
//! A line reads `fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd = null, by context;`: the prototype, how the
//! verb fails (a function of [`failure`](super::failure)), and the argument whose maker serves the call, or `system`
//! where no argument tells. A line that ends after its prototype is a function written by hand, because it concerns
//! several providers at once, makes an object without a parent, or needs no library at all.
//!
//! `list` names a macro that hands the same lines on, so that what exports these functions to C has no list of its own.
//!
//! Each line is compared with the prototype that bindgen made, at compile time and without a reference for the linker
//! to resolve. `by_name` at the end of a line says that there is no such prototype: the name is all that ties it to the
//! library.

/// Declares the struct of a table and what belongs to each of its functions. See the module documentation.
macro_rules! symbols {
    (
        $(list: $list:ident of $($module:ident)::+;)?

        $(#[$meta:meta])*
        pub struct $Table:ident $({ $(#[$inner_meta:meta])* pub $inner:ident: $Inner:ty })?
        for $Outer:ident;

        $(fn $name:ident $args:tt -> $ret:ty $(= $fail:ident, by $by:ident)? $(, $mark:ident)?;)*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default, Clone, Copy)]
        pub struct $Table {
            $(
                #[doc = concat!("`", stringify!($name), stringify!($args), " -> ", stringify!($ret), "`")]
                pub $name: Option<unsafe extern "C" fn $args -> $ret>,
            )*
            $($(#[$inner_meta])* pub $inner: $Inner,)?
        }

        impl $Table {
            /// Looks each function up by name.
            ///
            /// # Safety
            ///
            /// What `handle` exports under these names has these types, and `handle` is never closed.
            pub(crate) unsafe fn look_up(handle: &libloading::os::unix::Library) -> Self {
                $Table {
                    // SAFETY: by contract a symbol of this name is a function of this type, for as long as the process
                    // runs. A pointer to a function is as large as one to data, and `None` is null in both.
                    $($name: unsafe {
                        core::mem::transmute::<
                            Option<core::ptr::NonNull<core::ffi::c_void>>,
                            Option<unsafe extern "C" fn $args -> $ret>,
                        >($crate::load::address(handle, concat!(stringify!($name), "\0")))
                    },)*
                    // SAFETY: passed on to the caller.
                    $($inner: unsafe { <$Inner>::look_up(handle) },)?
                }
            }
        }

        /// The functions of a loaded library, each with a reason where the library lacks it.
        impl $crate::load::Library<$Outer> {
            $(
                #[doc = concat!("The function `", stringify!($name), "` of this library.")]
                ///
                /// # Errors
                ///
                /// [`LoadError::Symbol`](crate::load::LoadError::Symbol) when the library has none, because it is
                /// older.
                pub fn $name(&self) -> Result<unsafe extern "C" fn $args -> $ret, $crate::load::LoadError> {
                    self.symbol(AsRef::<$Table>::as_ref(self.table()).$name, stringify!($name))
                }
            )*
        }

        /// The C functions alone, for the root of the crate.
        #[doc(hidden)]
        pub mod c {
            pub use super::{$($name),*};
        }

        $($crate::load::symbols::symbols!(@check $($mark)? $name $args -> $ret);)*

        $crate::load::symbols::symbols!(@list ($) $($list [$($module)::+])? $(fn $name $args -> $ret;)*);

        $($($crate::load::symbols::symbols!(
            @function $Outer, $Table, $name $args -> $ret, $fail, $by
        );)?)*
    };

    (@list ($dollar:tt) fn $($line:tt)*) => {};
    (@list ($dollar:tt) $list:ident $module:tt $($line:tt)*) => {
        /// Hands these functions to the macro `$each`, for a library that exports them: what it wants besides, the module that has
        /// them, then a prototype a line.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $list {
            ($dollar each:path, $dollar with:path) => { $dollar each! { $dollar with, $module $($line)* } };
        }
    };

    (@check by_name $name:ident $args:tt -> $ret:ty) => {};
    (@check $name:ident $args:tt -> $ret:ty) => {
        const _: unsafe extern "C" fn $args -> $ret = $crate::bindings::prototypes::$name;
    };

    (
        @function $Outer:ident, $Table:ident,
        $name:ident ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $fail:ident, $by:ident
    ) => {
        #[doc = concat!("`", stringify!($name), "`: see `", stringify!($name), "(3)`.")]
        ///
        /// # Safety
        ///
        /// As in C: each pointer is to what the manual page asks for, and lives as long as it says.
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let owner = $crate::load::symbols::symbols!(@owner $by);
            match $crate::load::route::find::<$Outer, _>(owner, |table| {
                <$Outer as AsRef<$Table>>::as_ref(table).$name
            }) {
                // SAFETY: the function is that of the library or provider which made the object, and the caller keeps
                // its contract.
                Ok(function) => unsafe { function($($arg),*) },
                Err(code) => $crate::load::failure::$fail(code),
            }
        }
    };

    (@owner system) => { $crate::load::route::Owner::System };
    (@owner $object:ident) => {
        // SAFETY: by contract an object that is passed is alive, which is all that finding its maker needs.
        unsafe { $crate::load::route::Routed::owner($object) }
    };
}

/// Declares where the library of the system is kept for a table, and what is known of it.
macro_rules! system_library {
    ($(#[$meta:meta])* pub type $Loaded:ident = $Table:ident; known: $known:expr; first: $first:literal; of: $of:expr;) => {
        $(#[$meta])*
        pub type $Loaded = $crate::load::Library<$Table>;

        static SLOT: $crate::load::library::Slot<$Table> = $crate::load::library::Slot::new();

        /// The library of the system, loaded now if no verb has loaded it yet.
        ///
        /// # Errors
        ///
        /// [`LoadError::Library`](crate::load::LoadError::Library) says what was tried. The next call tries again.
        pub fn library() -> Result<&'static $Loaded, $crate::load::LoadError> {
            SLOT.get()
        }

        /// The library of the system, if a verb has loaded it already.
        pub fn loaded() -> Option<&'static $Loaded> {
            SLOT.loaded()
        }

        impl $crate::load::library::sealed::Sealed for $Table {}

        impl $crate::load::Table for $Table {
            const KNOWN: $crate::load::Known = $known;
            const FIRST: &'static str = $first;

            unsafe fn fill(handle: &libloading::os::unix::Library) -> Self {
                // SAFETY: passed on to the caller.
                unsafe { Self::look_up(handle) }
            }

            fn slot() -> &'static $crate::load::library::Slot<Self> {
                &SLOT
            }

            fn of(provider: &'static $crate::load::provider::Registered) -> Option<&'static Self> {
                let of: fn(&'static $crate::load::provider::Registered) -> Option<&'static Self> = $of;
                of(provider)
            }
        }

        impl AsRef<$Table> for $Table {
            fn as_ref(&self) -> &$Table {
                self
            }
        }
    };
}

pub(crate) use {symbols, system_library};
