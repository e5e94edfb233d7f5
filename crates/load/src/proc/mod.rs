//! The kernel's load figures as text: the files of proc(5), and those of control groups in both versions (the kernel's
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/).
//!
//! Pure functions, each over the bytes of one file. They read nothing and allocate nothing. They return `None` for any
//! file without the figure: kernels differ, and containers replace files.

pub mod cgroup;
pub mod machine;
pub mod process;

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// Parses a decimal number; `None` if there is anything else, or it does not fit.
fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The number after `key`, in a file of lines `KEY NUMBER`.
fn value_of(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| {
        let mut fields = fields(line);
        if fields.next()? == key { number(fields.next()?) } else { None }
    })
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
