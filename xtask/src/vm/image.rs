//! The initramfs of a guest: busybox, the modules and `init.sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;

/// The guest's first process, and its `insmod`, which unpacks modules: there is no library yet that they could link.
const BUSYBOX: &str = "/bin/busybox";

/// Writes the initramfs for a kernel with these modules below `dir`.
pub(super) fn initramfs(modules: &[PathBuf], dir: &Path) -> Result<PathBuf, Error> {
    let root = dir.join("root");
    let fill = || {
        for directory in ["bin", "proc", "sys", "dev", "host", "layer", "new", "modules"] {
            fs::create_dir_all(root.join(directory))?;
        }
        fs::copy(BUSYBOX, root.join("bin/busybox"))?;
        fs::write(root.join("init"), include_bytes!("init.sh"))?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        for (i, module) in modules.iter().enumerate() {
            fs::copy(module, root.join(format!("modules/{i:02}")))?;
        }
        Ok(())
    };
    fill().map_err(|source| Error::Write { path: root.clone(), source })?;
    let mut pack = Command::new("sh");
    pack.args(["-c", "find . | /bin/busybox cpio --create --format newc --quiet -F ../initramfs"]);
    exec::output(pack.current_dir(&root))?;
    Ok(dir.join("initramfs"))
}
