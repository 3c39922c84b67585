//! Finds a kernel with `rdma_rxe`, and keeps the parts for the guest in `target/softroce/kernels`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use super::download::{self, Tree};
use super::modules::{self, Index};
use super::{image, unpack};
use crate::progress::Step;

/// A prepared kernel: a folder with `vmlinuz`, `modules.list` (the guest's modules in load order) and
/// `modules/NAME.ko`.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The release, such as `6.1.0-13-amd64`.
    pub(crate) release: String,
    /// The folder.
    pub(crate) folder: PathBuf,
}

/// The caller's choice of a kernel.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// The distribution's current kernel.
    Default,
    /// The distribution's kernel of this release.
    Release(String),
    /// The caller's image, and the folder of its modules.
    Own { image: PathBuf, modules: PathBuf },
}

impl Choice {
    /// Reads the values of `--kernel` and `--modules`.
    pub(crate) fn new(kernel: Option<&str>, modules: Option<&Path>) -> Result<Self> {
        let Some(kernel) = kernel else {
            ensure!(modules.is_none(), "--modules DIR goes with --kernel PATH");
            return Ok(Self::Default);
        };
        if !kernel.contains('/') {
            ensure!(modules.is_none(), "--modules DIR goes with --kernel PATH; {kernel} is the name of a release");
            return Ok(Self::Release(kernel.to_owned()));
        }
        let image = std::path::absolute(kernel)?;
        let modules = match modules {
            Some(folder) => std::path::absolute(folder)?,
            None => modules_beside(&image).with_context(|| {
                format!("with {}, pass --modules DIR too, the folder with its modules.dep", image.display())
            })?,
        };
        Ok(Self::Own { image, modules })
    }
}

/// The kernel of `choice`, taken from the folder of prepared kernels if possible. The caller holds the lock.
///
/// # Errors
///
/// No kernel can be found or downloaded, or it lacks a module.
pub(crate) fn prepare(choice: &Choice, home: &Path) -> Result<Kernel> {
    if let Some(kernel) = prepared(choice, home)? {
        return Ok(kernel);
    }
    let kernel = match choice {
        Choice::Own { image, modules } => {
            let tree = Tree { release: own_release(modules)?, image: image.clone(), modules: modules.clone() };
            import(&tree, own_folder(home, image, modules)?)?
        }
        Choice::Default | Choice::Release(_) => {
            let release = if let Choice::Release(release) = choice { Some(release.as_str()) } else { None };
            if let Some(tree) = installed(release) {
                let folder = distribution_folder(home, &tree.release);
                import(&tree, folder)?
            } else {
                let unpacked = download::kernel(home, release)?;
                let folder = distribution_folder(home, &unpacked.tree.release);
                import(&unpacked.tree, folder)?
            }
        }
    };
    if matches!(choice, Choice::Default) {
        std::fs::write(default_note(home), &kernel.release)?;
    }
    Ok(kernel)
}

/// The kernel of `choice` if an earlier run has prepared it.
pub(crate) fn prepared(choice: &Choice, home: &Path) -> Result<Option<Kernel>> {
    let (release, folder) = match choice {
        Choice::Own { image, modules } => (own_release(modules)?, own_folder(home, image, modules)?),
        Choice::Release(release) => (release.clone(), distribution_folder(home, release)),
        Choice::Default => match std::fs::read_to_string(default_note(home)) {
            Ok(release) => (release.clone(), distribution_folder(home, &release)),
            Err(_) => return Ok(None),
        },
    };
    Ok(folder.join("vmlinuz").is_file().then_some(Kernel { release, folder }))
}

/// An installed kernel that this user may read and that has every module; the newest if there are several.
pub(crate) fn installed(release: Option<&str>) -> Option<Tree> {
    let mut found: Vec<(SystemTime, Tree)> = std::fs::read_dir("/lib/modules")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let modules = entry.path();
            let name = entry.file_name().into_string().ok()?;
            if release.is_some_and(|release| release != name) {
                return None;
            }
            let images = [PathBuf::from(format!("/boot/vmlinuz-{name}")), modules.join("vmlinuz")];
            let image = images.into_iter().find(|image| std::fs::File::open(image).is_ok())?;
            Index::read(&modules).ok()?.load_order(modules::WANTED).ok()?;
            let time = image.metadata().and_then(|data| data.modified()).ok()?;
            Some((time, Tree { release: name, image, modules }))
        })
        .collect();
    found.sort_by_key(|(time, _)| *time);
    found.pop().map(|(_, tree)| tree)
}

/// Copies the image and the needed modules, unpacked, into `folder`. On failure, copies nothing.
fn import(tree: &Tree, folder: PathBuf) -> Result<Kernel> {
    let step = Step::start(format!("softroce: preparing Linux {}", tree.release));
    let modules = Index::read(&tree.modules)?
        .load_order(modules::WANTED)
        .with_context(|| format!("Linux {} (modules in {}) is unsuitable", tree.release, tree.modules.display()))?;

    let parent = folder.parent().context("a prepared kernel has no parent folder")?;
    let draft = parent.join(".draft");
    let _ = std::fs::remove_dir_all(&draft);
    std::fs::create_dir_all(draft.join("modules"))?;
    let mut list = String::new();
    for module in &modules {
        let target = draft.join("modules").join(format!("{}.ko", module.name));
        unpack::copy_module(&tree.modules.join(&module.path), &target)?;
        list.push_str(if module.required { "required " } else { "optional " });
        list.push_str(&module.name);
        list.push('\n');
    }
    std::fs::write(draft.join("modules.list"), list)?;
    let packed = std::fs::read(&tree.image).with_context(|| format!("cannot read {}", tree.image.display()))?;
    std::fs::write(draft.join("vmlinuz"), image::unpack(&packed).unwrap_or(packed))?;
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::rename(&draft, &folder)?;
    step.done();
    Ok(Kernel { release: tree.release.clone(), folder })
}

/// The folder name contains a hash of the list of wanted modules, so that the kernel is prepared again if the list
/// changes.
fn distribution_folder(home: &Path, release: &str) -> PathBuf {
    home.join("kernels").join(format!("{release}-{:08x}", wanted_number()))
}

fn own_folder(home: &Path, image: &Path, modules: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    for file in [image.to_path_buf(), modules.join("modules.dep")] {
        let data = file.metadata().with_context(|| format!("cannot read {}", file.display()))?;
        (file, data.len(), data.modified()?).hash(&mut hasher);
    }
    wanted_number().hash(&mut hasher);
    let number = hasher.finish() as u32;
    Ok(home.join("kernels").join(format!("own-{number:08x}")))
}

fn default_note(home: &Path) -> PathBuf {
    home.join("kernels").join(format!("default-{:08x}", wanted_number()))
}

fn wanted_number() -> u32 {
    let mut hasher = DefaultHasher::new();
    format!("{:?}", modules::WANTED).hash(&mut hasher);
    hasher.finish() as u32
}

fn own_release(modules: &Path) -> Result<String> {
    let Some(name) = modules.file_name() else { bail!("{} names no folder of modules", modules.display()) };
    Ok(name.to_string_lossy().into_owned())
}

/// `/boot/vmlinuz-RELEASE` and `/lib/modules/RELEASE/vmlinuz` imply the folder of their modules.
fn modules_beside(image: &Path) -> Option<PathBuf> {
    let parent = image.parent()?;
    if parent.join("modules.dep").is_file() {
        return Some(parent.to_path_buf());
    }
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let folder = Path::new("/lib/modules").join(release);
    folder.join("modules.dep").is_file().then_some(folder)
}
