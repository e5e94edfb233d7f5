//! Archives as the kernel unpacks them into its initramfs: cpio's `newc` form, all of it root's. It reads no file.

/// An archive that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// The name of the entry that says there is none left.
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Its parent must be there already.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// A file that may be read and run.
    pub(super) fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, PROGRAM, data);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("no kernel module is as large as 4 GiB");
        let name_size = u32::try_from(path.len()).expect("names are short") + 1;
        // Inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend_from_slice(format!("{field:08X}").as_bytes()));
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and data of each entry, read as the kernel's init/initramfs.c does.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while let Some(header) = bytes.strip_prefix(b"070701") {
            let field = |i: usize| {
                let digits = std::str::from_utf8(&header[8 * i..8 * (i + 1)]).unwrap();
                u32::from_str_radix(digits, 16).unwrap() as usize
            };
            let (mode, size, name_size) = (field(1), field(6), field(11));
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let data = (110 + name_size).next_multiple_of(4);
            entries.push((name, mode as u32, bytes[data..data + size].to_vec()));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
        }
        assert!(bytes.is_empty());
        entries
    }

    #[test]
    fn what_went_in_comes_out() {
        let mut archive = Archive::default();
        archive.directory("modules");
        archive.file("modules/a.ko", b"12345");
        archive.file("init", b"");
        let expected = [
            ("modules".into(), DIRECTORY, vec![]),
            ("modules/a.ko".into(), PROGRAM, b"12345".to_vec()),
            ("init".into(), PROGRAM, vec![]),
            (TRAILER.into(), 0, vec![]),
        ];
        assert_eq!(read(&archive.finish()), expected);
    }
}
