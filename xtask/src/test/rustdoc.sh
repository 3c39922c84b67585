#!/bin/sh
# rustdoc compares the error codes of examples marked `compile_fail` only with this variable, or with a nightly
# toolchain. In the environment of cargo, it would rebuild the build scripts that read it.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
