//! A column of values, one for each request: in memory while there are few, otherwise in an unnamed temporary file. A
//! reader holds a window of it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Number of values held in memory, and in a window of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) held: usize,
    pub(crate) window: usize,
}

/// 200 MB of keys and times, and 0.8 MB of them for each run.
pub(crate) const LIMITS: Limits = Limits { held: 1 << 24, window: 1 << 16 };

/// A value of a column.
pub(crate) trait Value: Copy {
    const BYTES: usize;
    fn put(self, bytes: &mut Vec<u8>);
    fn take(bytes: &[u8]) -> Self;
}

impl Value for u32 {
    const BYTES: usize = 4;

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }
}

impl Value for u64 {
    const BYTES: usize = 8;

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    fn take(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }
}

/// All values. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Column<V> {
    Held(Arc<[V]>),
    Spooled { file: Arc<File>, count: usize, window: usize },
}

impl<V> Column<V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Column::Held(values) => values.len(),
            Column::Spooled { count, .. } => *count,
        }
    }
}

impl<V> From<Vec<V>> for Column<V> {
    fn from(values: Vec<V>) -> Self {
        Column::Held(values.into())
    }
}

/// A column that grows.
#[derive(Debug)]
pub(crate) struct Growing<V> {
    held: Vec<V>,
    file: Option<File>,
    spooled: usize,
    limits: Limits,
}

impl<V: Value> Growing<V> {
    pub(crate) fn new(limits: Limits) -> Self {
        Growing { held: Vec::new(), file: None, spooled: 0, limits }
    }

    pub(crate) fn len(&self) -> usize {
        self.spooled + self.held.len()
    }

    pub(crate) fn push(&mut self, value: V) -> io::Result<()> {
        // Once there is a file, it takes the values as they come.
        let most = if self.file.is_none() { self.limits.held } else { self.limits.window };
        // Checked before it grows: one more value would double the memory.
        if self.held.len() == most {
            self.spool()?;
        }
        self.held.push(value);
        Ok(())
    }

    fn spool(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let mut bytes = Vec::with_capacity(self.limits.window * V::BYTES);
        for values in self.held.chunks(self.limits.window) {
            bytes.clear();
            values.iter().for_each(|value| value.put(&mut bytes));
            file.write_all(&bytes)?;
        }
        self.spooled += self.held.len();
        self.held = Vec::new();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<Column<V>> {
        if self.file.is_some() {
            self.spool()?;
        }
        Ok(match self.file {
            None => self.held.into(),
            Some(file) => {
                Column::Spooled { file: Arc::new(file), count: self.spooled, window: self.limits.window }
            }
        })
    }
}

/// Reads a column, mostly forwards.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<V> {
    column: Column<V>,
    window: Vec<V>,
    /// Index of the window's first value.
    begin: usize,
}

impl<V: Value> Cursor<V> {
    pub(crate) fn new(column: &Column<V>) -> Self {
        Cursor { column: column.clone(), window: Vec::new(), begin: 0 }
    }

    /// The value at an existing index.
    #[inline]
    pub(crate) fn get(&mut self, at: usize) -> V {
        match &self.column {
            Column::Held(values) => values[at],
            Column::Spooled { .. } => match self.window.get(at.wrapping_sub(self.begin)) {
                Some(value) => *value,
                None => self.look(at),
            },
        }
    }

    /// Moves the window to an index.
    #[cold]
    fn look(&mut self, at: usize) -> V {
        let Column::Spooled { file, count, window } = &self.column else {
            unreachable!("others have no window")
        };
        self.begin = at - at % window;
        let mut bytes = vec![0; (*window).min(count - self.begin) * V::BYTES];
        let read = file.read_exact_at(&mut bytes, (self.begin * V::BYTES) as u64);
        read.expect("a temporary file has what was just written to it");
        self.window.clear();
        self.window.extend(bytes.chunks_exact(V::BYTES).map(V::take));
        self.window[at - self.begin]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_what_memory_would() {
        let column = |limits, count: u64| {
            let mut growing = Growing::new(limits);
            (0..count).for_each(|value| growing.push(value * 3).unwrap());
            assert_eq!(growing.len() as u64, count);
            growing.finish().unwrap()
        };
        for count in [0, 1, 100, 101, 128, 1000] {
            let few = Limits { held: 100, window: 16 };
            let (held, spooled) = (column(LIMITS, count), column(few, count));
            assert!(matches!(held, Column::Held(_)));
            assert_eq!(matches!(spooled, Column::Spooled { .. }), count > 100);
            assert_eq!((held.len(), spooled.len()), (count as usize, count as usize));
            let (mut held, mut spooled) = (Cursor::new(&held), Cursor::new(&spooled));
            // Forwards, and back again.
            for at in (0..count as usize).chain((0..count as usize).rev()) {
                assert_eq!(held.get(at), spooled.get(at), "{at} of {count}");
            }
        }
    }
}
