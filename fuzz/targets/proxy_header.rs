//! The header of the PROXY protocol: it ends within the bytes, at the first place where it is complete, whatever follows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_proxy::fuzz::proxy_header;

fuzz_target!(|bytes: &[u8]| {
    if let Some(len) = proxy_header(bytes) {
        assert_eq!(proxy_header(&bytes[..len]), Some(len));
        assert_eq!(proxy_header(&bytes[..len - 1]), None);
    }
});
