//! Writes `rdma-mummy-sys/src/bindings/` from the rdma-core headers of this machine.
//!
//! `cargo xtask bindings` runs it; `--check` compares instead of writing. It needs libclang and the packages
//! libibverbs-dev and librdmacm-dev (the crate itself needs none of them).
#![expect(clippy::print_stdout, reason = "a command-line tool")]

mod headers;
mod postprocess;
mod version;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

/// Makes the committed bindings of rdma-mummy-sys from the installed rdma-core headers.
#[derive(Parser)]
struct Arguments {
    /// Compare with the committed files and fail where they differ; write nothing.
    #[arg(long)]
    check: bool,

    /// Where the headers are.
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
                "the committed bindings were made from rdma-core {recorded}, the headers here are of {installed}: \
                 compare on a machine with {recorded}"
            );
        }
    }

    let mut drifted = Vec::new();
    for output in headers::OUTPUTS {
        let text = output.generate(&arguments.include, &installed)?;
        let path = folder.join(output.file);
        if arguments.check {
            let committed = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            if committed != text {
                drifted.push(output.file);
            }
        } else {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            println!("wrote src/bindings/{}", output.file);
        }
    }

    if !drifted.is_empty() {
        bail!(
            "src/bindings differs from what the headers of rdma-core {installed} give: {}. \
             Run `cargo xtask bindings` and look at the difference.",
            drifted.join(", ")
        );
    }
    if arguments.check {
        println!("src/bindings is what rdma-core {installed} gives ({} files)", headers::OUTPUTS.len());
    }
    Ok(())
}
