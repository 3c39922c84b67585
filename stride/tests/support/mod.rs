//! What several of these programs need.

use std::process::Output;

/// What a run that ended with this status has said, on standard output and beside it.
#[track_caller]
pub(crate) fn ends(output: &Output, status: i32) -> (String, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    assert_eq!(output.status.code(), Some(status), "{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}
