//! What must not compile: one rule a file in `compile-fail/`, named after the rule, with what the compiler says of it.
//!
//! After a change of the compiler's words, `TRYBUILD=overwrite cargo test -p sideway-tests --test compile_fail` writes
//! them anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("compile-fail/*.rs");
}
