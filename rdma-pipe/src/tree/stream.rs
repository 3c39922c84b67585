//! Outputs that are not replaced: the open files of this process, such as `/dev/stdout`, devices and pipes.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result, escape};
use crate::standard::Standard;

/// Duplicates the standard output or the standard error if the path names it, as `/dev/stdout` and `/dev/fd/2` do. `None`
/// if the path names something else. To open the path instead would replace a file, or begin at its start, where another
/// program may have written.
///
/// # Errors
///
/// The stream is closed, or the path names another open regular file of this process.
pub fn own_stream(path: &Path) -> Option<Result<OwnedFd>> {
    let named = path;
    let path =
        std::fs::read_link(path).ok().filter(|link| link.starts_with("/proc")).unwrap_or_else(|| path.to_owned());
    let folder = std::fs::canonicalize(path.parent()?).ok()?;
    let own = Path::new("/proc").join(std::process::id().to_string());
    if !folder.starts_with(own) || !folder.ends_with("fd") {
        return None;
    }
    let fd = match path.file_name()?.to_str()? {
        "1" => Standard::Output.duplicate(),
        "2" => Standard::Error.duplicate(),
        _ if path.metadata().is_ok_and(|found| found.is_file()) => {
            let text = format!("cannot write to {}: it names an open file; give the file's own name", escape(&path));
            return Some(Err(Error::new(Kind::File, text)));
        }
        _ => return None,
    };
    Some(fd.map_err(|error| Error::file("write to", named, &error)))
}

/// Opens a device or pipe for writing, which may wait for its reader.
///
/// # Errors
///
/// See open(2); or a file has taken its place, of which writing would leave the end.
pub fn open_special(path: &Path) -> Result<OwnedFd> {
    let cannot = |error: Errno| Error::file("write to", path, &error.into());
    let opened = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(cannot)?;
    let found = rustix::fs::fstat(&opened).map_err(cannot)?;
    if FileType::from_raw_mode(found.st_mode).is_file() {
        let text = format!("cannot write to {}: it has become a file; copy again", escape(path));
        return Err(Error::new(Kind::File, text));
    }
    Ok(opened)
}
