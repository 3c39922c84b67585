//! The bindings and the ported inline functions, compared with the C headers by the C compiler.

mod inlines;
mod layout;
