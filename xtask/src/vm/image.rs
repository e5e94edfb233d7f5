//! What QEMU loads: the kernel, unpacked, and an initramfs with busybox, the modules and `init.sh`.
//!
//! Debian's kernel comes compressed, and unpacks itself in 3.5 s under emulation. QEMU can start the unpacked one
//! directly (by its PVH entry), so it is unpacked here, once for each kernel, in a fraction of that.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Archive;
use super::kernel::Kernel;
use crate::error::Error;
use crate::exec;

/// How a compressed file begins, and what unpacks it.
const PACKERS: &[(&[u8], &str)] = &[(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// The kernel's image as QEMU starts it fastest, kept in `cache` for the next time.
pub(super) fn kernel(kernel: &Kernel, cache: &Path) -> Result<PathBuf, Error> {
    let packed = read(&kernel.image)?;
    let mut hasher = DefaultHasher::new();
    packed.hash(&mut hasher);
    let unpacked = cache.join(format!("vmlinux-{}-{:016x}", kernel.version, hasher.finish()));
    if unpacked.exists() {
        return Ok(unpacked);
    }
    // One that is built otherwise unpacks itself.
    let Some(image) = payload(&packed).map(unpack).transpose()?.filter(|image| image.starts_with(b"\x7fELF"))
    else {
        return Ok(kernel.image.clone());
    };
    let cannot_write = |source| Error::Write { path: unpacked.clone(), source };
    std::fs::create_dir_all(cache).map_err(cannot_write)?;
    // In one step: another guest may be about to start.
    let mut file = tempfile::NamedTempFile::new_in(cache).map_err(cannot_write)?;
    file.write_all(&image).map_err(cannot_write)?;
    file.persist(&unpacked).map_err(|error| cannot_write(error.error))?;
    Ok(unpacked)
}

/// The initramfs for a kernel.
pub(super) fn initramfs(kernel: &Kernel, busybox: &Path) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::default();
    for directory in ["bin", "proc", "sys", "dev", "host", "layer", "new", "modules"] {
        archive.directory(directory);
    }
    archive.file("bin/busybox", &read(busybox)?);
    archive.file("init", include_bytes!("init.sh"));
    let mut order = String::new();
    for (i, module) in kernel.modules.iter().enumerate() {
        let name = format!("{i:02}.ko");
        archive.file(&format!("modules/{name}"), &unpack(&read(module)?)?);
        order += &name;
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// The compressed kernel within its image, by the fields of the x86 boot protocol from 2.08 on.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" || number(0x206)? & 0xffff < 0x208 {
        return None;
    }
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let start = setup.checked_add(number(0x248)?)?;
    // The last four bytes are the unpacked size.
    let end = start.checked_add(number(0x24c)?)?.checked_sub(4)?;
    image.get(start..end)
}

/// `bytes`, unpacked where they are compressed.
fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    match PACKERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, packer)) => exec::filter(Command::new(packer).arg("-dc"), bytes),
        None => Ok(bytes.to_vec()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32 + 4).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"sizemore");
        image
    }

    #[test]
    fn the_payload_is_found_by_the_header() {
        assert_eq!(payload(&image(b"kernel")), Some(b"kernel".as_slice()));
    }

    #[test]
    fn what_is_no_image_has_none() {
        let good = image(b"kernel");
        for length in 0..good.len() - 8 {
            assert_eq!(payload(&good[..length]), None, "{length}");
        }
        let mut old = good;
        old[0x206] = 0x07;
        assert_eq!(payload(&old), None);
    }

    #[test]
    fn what_is_compressed_is_unpacked() {
        assert_eq!(unpack(b"plain").unwrap(), b"plain");
        let packed = exec::filter(Command::new("xz").arg("-c"), b"plain").unwrap();
        assert_eq!(unpack(&packed).unwrap(), b"plain");
        assert!(unpack(&packed[..packed.len() - 1]).is_err());
    }
}
