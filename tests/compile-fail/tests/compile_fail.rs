//! Programs for which sideway has error messages of its own (`diagnostic::on_unimplemented`). Each file in `programs/`
//! tests the rule that it is named after, and has the compiler's errors. `sideway/src/misuse/` tests the other rules.
//!
//! After a change of the compiler's messages, `TRYBUILD=overwrite cargo xtask ci compile-fail --again` updates them.

#![allow(clippy::unwrap_used, reason = "a test")]

/// The number of rules. Raise it for a new rule; the test fails if a rule is lost.
const RULES: usize = 8;

#[test]
#[ignore = "compares with the texts of one release of rustc: cargo xtask ci compile-fail"]
fn misuse_does_not_compile() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/programs")).unwrap();
    let rules = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "rs")).count();
    assert_eq!(rules, RULES);
    trybuild::TestCases::new().compile_fail("programs/*.rs");
}
