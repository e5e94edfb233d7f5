//! Memory that the owner did not allocate, and regions whose owner chooses the shape.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, memfd_create};
use sidelong_fabric::{Access, Batch, Directory, Error, Key};
use sidelong_layout::{RegionHeader, RegionKind};

use crate::support::backends::Backend;
use crate::support::node::{LEN, Node, PATIENCE, WORD, spec};

/// Like the kernel's map, with a file in its place.
pub(crate) fn memory_of_others_is_read_as_they_change_it<B: Backend>(backend: &B) {
    let host = backend.start("a");
    let memory = || File::from(memfd_create("map", MemfdFlags::CLOEXEC).unwrap());
    let (file, other) = (memory(), memory());
    let too_short = host.expose_mapped(&spec("a", Access::ReadOnly, LEN, 1), &file).unwrap_err();
    assert!(matches!(too_short, Error::Map { .. }), "{too_short}");
    [&file, &other].iter().for_each(|file| file.set_len(LEN as u64).unwrap());
    file.write_all_at(&77u64.to_ne_bytes(), WORD as u64).unwrap();
    let region = host.expose_mapped(&spec("a", Access::ReadOnly, LEN, 3), &file).unwrap();
    let again = host.expose_mapped(&spec("a", Access::ReadOnly, LEN, 4), &other).unwrap_err();
    assert!(matches!(again, Error::Taken { .. }), "{again}");
    let mut initiator = B::initiator();
    let link = initiator.connect(region.key(), PATIENCE).unwrap();
    let mut batch = Batch::new();
    let header = batch.read(link, 0, WORD);
    let owners = batch.read(link, WORD + 8, 8);
    let swap = batch.compare_and_swap(link, WORD, 77, 1);
    for value in [77, 78, 1 << 60] {
        file.write_all_at(&u64::to_ne_bytes(value), WORD as u64).unwrap();
        region.store(WORD + 8, value, Ordering::Release);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!((batch.value(owners), batch.value(swap).is_err()), (Ok(value), true));
        let mut theirs = Batch::new();
        let link = initiator.connect(region.key(), PATIENCE).unwrap();
        let read = theirs.read(link, WORD, 8);
        initiator.run(&mut theirs, PATIENCE);
        assert_eq!(theirs.value(read), Ok(value));
        initiator.close(link);
    }
    initiator.run(&mut batch, PATIENCE);
    let words = batch.words(header).map(|words| words.try_into().unwrap());
    if let Ok(words) = words {
        assert_eq!(RegionHeader::checked(&words, 0, RegionKind::Raw, LEN).unwrap().incarnation, 3);
    }
}

/// A search for one of several shapes returns the actual shape, and accepts no other.
pub(crate) fn a_region_is_found_by_its_shape<B: Backend>(backend: &B) {
    let node = Node::start(backend, "a", Access::ReadOnly);
    let directory = Told(node.region.key().clone());
    let mut initiator = (node.initiator)();
    let mut find = |shapes: &[(RegionKind, usize)]| {
        initiator.connect_shaped(&directory, "a", shapes, shapes.len() / 2, Access::ReadOnly, PATIENCE)
    };
    let (kernel, longer, right) =
        ((RegionKind::Kernel, LEN), (RegionKind::Raw, 2 * LEN), (RegionKind::Raw, LEN));
    for (shapes, place) in [(&[right, kernel][..], 0), (&[kernel, longer, right], 2), (&[kernel, right], 1)] {
        assert_eq!(find(shapes).unwrap().1, place);
    }
    let none = find(&[kernel, longer]).unwrap_err();
    assert!(matches!(none, Error::Header { .. }), "{none}");

    /// A directory that knows one key, and trusts the reader about the region's shape.
    struct Told(Key);
    impl Directory for Told {
        fn publish(&self, _: &Key) -> Result<(), Error> {
            unreachable!("nobody publishes here")
        }
        fn find(&self, _: &str, kind: RegionKind, len: usize, access: Access) -> Result<Key, Error> {
            let mut key = self.0.clone();
            (key.kind, key.len, key.access) = (kind, len, access);
            Ok(key)
        }
    }
}
