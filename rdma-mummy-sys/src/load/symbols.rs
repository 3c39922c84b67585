//! Generates a library's table, its lookup and its public functions from one C prototype per line.
//!
//! A line reads `fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd = null, by
//! context;`: the prototype, how the verb fails (a function of [`failure`](super::failure)), and the argument whose
//! provider serves the call, or `system` if there is none. A line that ends after its prototype is a function written
//! by hand: it concerns several providers, creates an object without a parent, or needs no library.
//!
//! `list` names a macro that passes the same lines on to libraries that export these functions to C.
//!
//! Each line is compared at compile time with bindgen's prototype, without a reference for the linker to resolve.
//! `by_name` at the end of a line marks a function without such a prototype: only its name ties it to the library.

/// Declares the struct of a table and the items for each of its functions. See the module documentation.
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
            /// Symbols that `handle` exports under these names have these types, and `handle` is never closed.
            pub(crate) unsafe fn look_up(handle: &libloading::os::unix::Library) -> Self {
                $Table {
                    // SAFETY: by contract a symbol of this name is a function of this type, until the process exits.
                    // Function and data pointers have the same size, and `None` is null in both.
                    $($name: unsafe {
                        core::mem::transmute::<
                            Option<core::ptr::NonNull<core::ffi::c_void>>,
                            Option<unsafe extern "C" fn $args -> $ret>,
                        >($crate::load::address(handle, concat!(stringify!($name), "\0")))
                    },)*
                    // SAFETY: the caller upholds the contract.
                    $($inner: unsafe { <$Inner>::look_up(handle) },)?
                }
            }
        }

        /// The functions of a loaded library, or an error if the library lacks one.
        impl $crate::load::Library<$Outer> {
            $(
                #[doc = concat!("The function `", stringify!($name), "` of this library.")]
                ///
                /// # Errors
                ///
                /// [`LoadError::Symbol`](crate::load::LoadError::Symbol) if the library is older than the function.
                pub fn $name(&self) -> Result<unsafe extern "C" fn $args -> $ret, $crate::load::LoadError> {
                    self.symbol(AsRef::<$Table>::as_ref(self.table()).$name, stringify!($name))
                }
            )*
        }

        /// The C functions alone, for the crate root.
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
        /// Passes these functions to the macro `$each`, for a library that exports them: its extra arguments, the
        /// module of the functions, then one prototype per line.
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
        /// As in C: each pointer is valid for as long as the manual page requires.
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::load::front::front!(
                @ $Outer, |table| <$Outer as AsRef<$Table>>::as_ref(table).$name, ($($arg),*)
            );
            let owner = $crate::load::symbols::symbols!(@owner $by);
            match $crate::load::route::find::<$Outer, _>(owner, |table| {
                <$Outer as AsRef<$Table>>::as_ref(table).$name
            }) {
                // SAFETY: the function comes from the library or provider of the object, and the caller upholds its
                // contract.
                Ok(function) => unsafe { function($($arg),*) },
                Err(code) => $crate::load::failure::$fail(code),
            }
        }
    };

    (@owner system) => { $crate::load::route::Owner::System };
    (@owner $object:ident) => {
        // SAFETY: by contract the object is live, which is all that finding its provider needs.
        unsafe { $crate::load::route::Routed::owner($object) }
    };
}

/// Declares the storage of a table's system library and its static facts.
macro_rules! system_library {
    ($(#[$meta:meta])* pub type $Loaded:ident = $Table:ident; known: $known:expr; first: $first:literal; of: $of:expr;) => {
        $(#[$meta])*
        pub type $Loaded = $crate::load::Library<$Table>;

        static SLOT: $crate::load::library::Slot<$Table> = $crate::load::library::Slot::new();

        /// Returns the system's library, loading it if no verb has done so.
        ///
        /// # Errors
        ///
        /// [`LoadError::Library`](crate::load::LoadError::Library) with each path tried. The next call tries again.
        pub fn library() -> Result<&'static $Loaded, $crate::load::LoadError> {
            SLOT.get()
        }

        /// Returns the system's library, if a verb has loaded it.
        pub fn loaded() -> Option<&'static $Loaded> {
            SLOT.loaded()
        }

        impl $crate::load::library::sealed::Sealed for $Table {}

        impl $crate::load::Table for $Table {
            const KNOWN: $crate::load::Known = $known;
            const FIRST: &'static str = $first;

            unsafe fn fill(handle: &libloading::os::unix::Library) -> Self {
                // SAFETY: the caller upholds the contract.
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
