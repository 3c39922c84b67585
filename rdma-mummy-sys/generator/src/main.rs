//! Writes `rdma-mummy-sys/src/bindings/` from this machine's rdma-core headers.
//!
//! `cargo xtask bindings` runs this program; `--check` compares instead of writing. The program needs libclang and the
//! packages libibverbs-dev and librdmacm-dev (the crate itself needs none of them).
#![expect(clippy::print_stdout, reason = "a command-line tool")]

mod headers;
mod postprocess;
mod version;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

/// Generates the bindings of rdma-mummy-sys from the installed rdma-core headers.
#[derive(Parser)]
struct Arguments {
    /// Compare with the committed files and fail on differences; write nothing.
    #[arg(long)]
    check: bool,

    /// Include directory of the headers.
    #[arg(long, default_value = "/usr/include", value_name = "FOLDER")]
    include: PathBuf,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/bindings");
    let installed = version::installed()?;
    if arguments.check {
        let recorded = version::recorded(&folder)?;
        if installed != recorded {
            bail!(
                "the committed bindings are from rdma-core {recorded}, but the installed headers are from \
                {installed}; compare on a machine with rdma-core {recorded}"
            );
        }
    }

    let mut drifted = Vec::new();
    for output in headers::OUTPUTS {
        let text = output.generate(&arguments.include, &installed)?;
        let path = folder.join(output.file);
        if arguments.check {
            let committed = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if committed != text {
                drifted.push(output.file);
            }
        } else {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote src/bindings/{}", output.file);
        }
    }

    if !drifted.is_empty() {
        bail!(
            "src/bindings differs from the rdma-core {installed} headers in {}; run `cargo xtask bindings` and \
            review the difference",
            drifted.join(", ")
        );
    }
    if arguments.check {
        println!("src/bindings matches rdma-core {installed} ({} files)", headers::OUTPUTS.len());
    }
    Ok(())
}
