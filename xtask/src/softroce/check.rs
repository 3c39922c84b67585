//! `cargo xtask softroce --check`: reports the actions of a run.

use anyhow::Result;

use super::{Guest, accel, kernel, supported_host};
use crate::packages;
use crate::repo;

/// Prints the findings; the exit code is 0 if a run can start.
pub(crate) fn check(guest: &Guest) -> Result<u8> {
    supported_host()?;
    let mut ready = true;
    let missing = packages::missing(&[packages::SOFTROCE]);
    if missing.is_empty() {
        println!("packages: all there");
    } else {
        let names = missing.into_iter().collect::<Vec<_>>().join(" ");
        ready = packages::may_install();
        println!("packages: {} {names}", if ready { "a run would install" } else { "not installed:" });
    }

    let home = repo::softroce_folder()?;
    let choice = kernel::Choice::new(guest.kernel.as_deref(), guest.modules.as_deref())?;
    let release = guest.kernel.as_deref();
    if let Some(kernel) = kernel::prepared(&choice, &home)? {
        println!("kernel: Linux {}, prepared in {}", kernel.release, kernel.folder.display());
    } else if let kernel::Choice::Own { image, modules } = &choice {
        println!("kernel: a run would prepare {} with the modules in {}", image.display(), modules.display());
    } else if let Some(tree) = kernel::installed(release) {
        println!("kernel: a run would prepare the installed Linux {}", tree.release);
    } else if packages::is_debian() {
        println!("kernel: a run would download the distribution's (70 to 150 MB)");
    } else {
        println!("kernel: none found; pass --kernel PATH --modules DIR");
        ready = false;
    }

    match (guest.accel, accel::remembered(&home)) {
        (accel::Asked::Auto, Some((accelerator, reason))) => println!("accelerator: {} ({reason})", accelerator.name()),
        (accel::Asked::Auto, None) => println!("accelerator: a run would try KVM and else use TCG"),
        (asked, _) => println!("accelerator: {asked:?}, as requested"),
    }
    println!("{}", if ready { "ready" } else { "not ready" });
    Ok(u8::from(!ready))
}
