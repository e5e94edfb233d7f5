//! libibverbs as its header `infiniband/verbs.h` declares it, for 64-bit Linux: the structures, constants and functions that
//! `sys` uses. The library is loaded when it is first needed, so the program starts without it.
//!
//! The verbs of the data path are inline in the header, and call what a device's driver left in its context. So are they
//! here. Each of the library's symbols has versions; one looked up without a version is the newest, which is also the one
//! that a program gets that is compiled now. None of these symbols has changed since version 1.1 of the library's ABI. The
//! youngest is `_ibv_query_gid_table`, of rdma-core 32 (2020).
//!
//! The compiler compares each structure with the offsets that stand beside its fields, and a test compares these and the
//! constants with the header, where it is installed.
//!
//! It is called by `sys` alone.

#![allow(non_camel_case_types, reason = "the names of the header, under which manuals explain them")]

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::OnceLock;

use bytemuck::Zeroable;

/// The library's file. Its number changes if older programs no longer work with it.
const FILE: &str = "libibverbs.so.1";

macro_rules! functions {
    ($(fn $name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        #[derive(Debug)]
        pub(in crate::verbs) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// The functions are there for as long as it is.
            _file: libloading::Library,
        }

        impl Library {
            fn load() -> Result<Library, libloading::Error> {
                // SAFETY: what the library runs when it is loaded needs nothing of this program.
                let file = unsafe { libloading::Library::new(FILE) }?;
                Ok(Library {
                    // SAFETY: the types are those of the header.
                    $($name: unsafe { *file.get(stringify!($name))? },)*
                    _file: file,
                })
            }
        }
    };
}

functions! {
    fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(*mut *mut ibv_device);
    fn ibv_get_device_name(*mut ibv_device) -> *const c_char;
    fn ibv_fork_init() -> c_int;
    fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(*mut ibv_context) -> c_int;
    fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    fn _ibv_query_gid_table(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    fn ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
    fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
    fn ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    fn ibv_destroy_qp(*mut ibv_qp) -> c_int;
}

impl Library {
    /// The library, which is loaded by the first call; or why it cannot be.
    pub(in crate::verbs) fn get() -> Result<&'static Library, &'static str> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        // The reason is what the dynamic linker says; the error itself only names the call.
        let reason = |error: libloading::Error| error.source().map_or(error.to_string(), ToString::to_string);
        let loaded = LIBRARY.get_or_init(|| Library::load().map_err(reason));
        loaded.as_ref().map_err(String::as_str)
    }
}

macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        struct $name:ident $(at $place:literal)? $(: $size:literal)? { $($offset:literal $field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[$meta])*
            $(
                #[doc = concat!("It has ", $size, " bytes.")]
                #[derive(Clone, Copy, Zeroable)]
            )?
            #[repr(C)]
            pub(super) struct $name { $(pub(super) $field: $type,)* }

            const _: () = {
                $(assert!(offset_of!($name, $field) == $offset);)*
                $(assert!(size_of::<$name>() == $size);)?
            };
        )*

        /// What C must find to be true of the header's structures.
        #[cfg(test)]
        fn claims() -> Vec<String> {
            let mut claims = Vec::new();
            $(
                let place = [$($place,)? concat!("struct ", stringify!($name))][0];
                $(claims.push(format!("sizeof({place}) == {}", $size));)?
                for (field, offset, size) in [$((stringify!($field), $offset, size_of::<$type>())),*] {
                    if field.starts_with('_') {
                        continue; // it stands for several
                    }
                    claims.push(format!("offsetof({place}, {field}) == {offset}"));
                    claims.push(format!("sizeof((({place} *)0)->{field}) == {size}"));
                }
            )*
            claims
        }
    };
}

// Each field stands behind its offset, and the name of each structure that is made here before its size. Of the others, which
// the library makes, only the beginning is declared.
structures! {
    struct ibv_device {
        0 _ops: [usize; 2],
        16 node_type: c_int,
        20 transport_type: u32,
    }

    struct ibv_device_attr: 232 {
        0 fw_ver: [c_char; 64],
        64 node_guid: u64,
        72 sys_image_guid: u64,
        80 max_mr_size: u64,
        88 page_size_cap: u64,
        96 vendor_id: u32,
        100 vendor_part_id: u32,
        104 hw_ver: u32,
        108 max_qp: c_int,
        112 max_qp_wr: c_int,
        116 device_cap_flags: c_uint,
        120 max_sge: c_int,
        124 max_sge_rd: c_int,
        128 max_cq: c_int,
        132 max_cqe: c_int,
        136 max_mr: c_int,
        140 max_pd: c_int,
        144 max_qp_rd_atom: c_int,
        148 max_ee_rd_atom: c_int,
        152 max_res_rd_atom: c_int,
        156 max_qp_init_rd_atom: c_int,
        160 max_ee_init_rd_atom: c_int,
        164 atomic_cap: u32,
        168 max_ee: c_int,
        172 max_rdd: c_int,
        176 max_mw: c_int,
        180 max_raw_ipv6_qp: c_int,
        184 max_raw_ethy_qp: c_int,
        188 max_mcast_grp: c_int,
        192 max_mcast_qp_attach: c_int,
        196 max_total_mcast_qp_attach: c_int,
        200 max_ah: c_int,
        204 max_fmr: c_int,
        208 max_map_per_fmr: c_int,
        212 max_srq: c_int,
        216 max_srq_wr: c_int,
        220 max_srq_sge: c_int,
        224 max_pkeys: u16,
        226 local_ca_ack_delay: u8,
        227 phys_port_cnt: u8,
    }

    /// As far as the function `ibv_query_port` fills it. The header's macro of that name asks the driver for the fields that
    /// later versions have added.
    #[derive(Clone, Copy, Zeroable)]
    struct ibv_port_attr {
        0 state: u32,
        4 max_mtu: u32,
        8 active_mtu: u32,
        12 gid_tbl_len: c_int,
        16 port_cap_flags: u32,
        20 max_msg_sz: u32,
        24 bad_pkey_cntr: u32,
        28 qkey_viol_cntr: u32,
        32 pkey_tbl_len: u16,
        34 lid: u16,
        36 sm_lid: u16,
        38 lmc: u8,
        39 max_vl_num: u8,
        40 sm_sl: u8,
        41 subnet_timeout: u8,
        42 init_type_reply: u8,
        43 active_width: u8,
        44 active_speed: u8,
        45 phys_state: u8,
        46 link_layer: u8,
        47 flags: u8,
    }

    struct ibv_gid_entry: 32 {
        0 gid: ibv_gid,
        16 gid_index: u32,
        20 port_num: u32,
        24 gid_type: u32,
        28 ndev_ifindex: u32,
    }

    struct ibv_context {
        0 device: *mut ibv_device,
        8 ops: ibv_context_ops,
    }

    /// The verbs of the data path, by the device's driver. `None` where the header looks whether there is one.
    struct ibv_context_ops {
        0 _control: [usize; 7],
        56 alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
        64 _bind_mw: usize,
        72 dealloc_mw: unsafe extern "C" fn(*mut ibv_mw) -> c_int,
        80 _create_cq: usize,
        88 poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
        96 req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
        104 _objects: [usize; 12],
        200 post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
        208 post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        216 _addresses: [usize; 5],
    }

    struct ibv_pd {
        0 context: *mut ibv_context,
    }

    struct ibv_mr {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 addr: *mut c_void,
        24 length: usize,
        32 handle: u32,
        36 lkey: u32,
        40 rkey: u32,
    }

    struct ibv_mw {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 rkey: u32,
    }

    struct ibv_comp_channel {
        0 context: *mut ibv_context,
        8 fd: c_int,
    }

    struct ibv_cq {
        0 context: *mut ibv_context,
    }

    struct ibv_wc: 48 {
        0 wr_id: u64,
        8 status: u32,
        12 opcode: u32,
        16 vendor_err: u32,
        20 byte_len: u32,
        24 imm_data: u32,
        28 qp_num: u32,
        32 src_qp: u32,
        36 wc_flags: c_uint,
        40 pkey_index: u16,
        42 slid: u16,
        44 sl: u8,
        45 dlid_path_bits: u8,
    }

    struct ibv_qp {
        0 context: *mut ibv_context,
        8 qp_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 send_cq: *mut ibv_cq,
        32 recv_cq: *mut ibv_cq,
        40 srq: *mut c_void,
        48 handle: u32,
        52 qp_num: u32,
    }

    struct ibv_qp_cap: 20 {
        0 max_send_wr: u32,
        4 max_recv_wr: u32,
        8 max_send_sge: u32,
        12 max_recv_sge: u32,
        16 max_inline_data: u32,
    }

    struct ibv_qp_init_attr: 64 {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut c_void,
        32 cap: ibv_qp_cap,
        52 qp_type: u32,
        56 sq_sig_all: c_int,
    }

    struct ibv_global_route: 24 {
        0 dgid: ibv_gid,
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
    }

    struct ibv_ah_attr: 32 {
        0 grh: ibv_global_route,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        29 is_global: u8,
        30 port_num: u8,
    }

    struct ibv_qp_attr: 144 {
        0 qp_state: u32,
        4 cur_qp_state: u32,
        8 path_mtu: u32,
        12 path_mig_state: u32,
        16 qkey: u32,
        20 rq_psn: u32,
        24 sq_psn: u32,
        28 dest_qp_num: u32,
        32 qp_access_flags: c_uint,
        36 cap: ibv_qp_cap,
        56 ah_attr: ibv_ah_attr,
        88 alt_ah_attr: ibv_ah_attr,
        120 pkey_index: u16,
        122 alt_pkey_index: u16,
        124 en_sqd_async_notify: u8,
        125 sq_draining: u8,
        126 max_rd_atomic: u8,
        127 max_dest_rd_atomic: u8,
        128 min_rnr_timer: u8,
        129 port_num: u8,
        130 timeout: u8,
        131 retry_cnt: u8,
        132 rnr_retry: u8,
        133 alt_port_num: u8,
        134 alt_timeout: u8,
        136 rate_limit: u32,
    }

    struct ibv_sge: 16 {
        0 addr: u64,
        8 length: u32,
        12 lkey: u32,
    }

    struct ibv_send_wr: 128 {
        0 wr_id: u64,
        8 next: *mut ibv_send_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
        28 opcode: u32,
        32 send_flags: c_uint,
        36 imm_data: u32,
        40 wr: remote,
        72 qp_type: u32,
        80 bind_mw: bind_mw,
    }

    struct rdma at "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)": 16 {
        0 remote_addr: u64,
        8 rkey: u32,
    }

    struct atomic at "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)": 32 {
        0 remote_addr: u64,
        8 compare_add: u64,
        16 swap: u64,
        24 rkey: u32,
    }

    struct bind_mw at "__typeof__(((struct ibv_send_wr *)0)->bind_mw)": 48 {
        0 mw: *mut ibv_mw,
        8 rkey: u32,
        16 bind_info: ibv_mw_bind_info,
    }

    struct ibv_mw_bind_info: 32 {
        0 mr: *mut ibv_mr,
        8 addr: u64,
        16 length: u64,
        24 mw_access_flags: c_uint,
    }

    struct ibv_recv_wr: 32 {
        0 wr_id: u64,
        8 next: *mut ibv_recv_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
    }
}

/// In the header a union of these bytes and two words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Zeroable)]
pub(super) struct ibv_gid {
    pub(super) raw: [u8; 16],
}

/// The memory of the peer that a request concerns.
#[repr(C)]
#[derive(Clone, Copy, Zeroable)]
pub(super) union remote {
    pub(super) rdma: rdma,
    pub(super) atomic: atomic,
}

macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub(super) const $name: u32 = $value;)*

        /// What C must find to be true of the header's constants.
        #[cfg(test)]
        fn claims_of_constants() -> Vec<String> {
            vec![$(format!("{} == {}", stringify!($name), $name)),*]
        }
    };
}

constants! {
    IBV_TRANSPORT_IWARP = 1;
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24;
    IBV_ATOMIC_NONE = 0;
    IBV_ATOMIC_HCA = 1;
    IBV_PORT_ACTIVE = 4;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_GID_TYPE_ROCE_V2 = 2;
    IBV_MW_TYPE_2 = 2;

    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    IBV_ACCESS_REMOTE_READ = 1 << 2;
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
    IBV_ACCESS_MW_BIND = 1 << 4;

    IBV_QPT_RC = 2;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;

    IBV_QP_STATE = 1;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_DEST_QPN = 1 << 20;

    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND = 2;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
    IBV_WR_BIND_MW = 8;

    IBV_SEND_SIGNALED = 1 << 1;
    IBV_SEND_INLINE = 1 << 3;

    IBV_WC_SUCCESS = 0;
    IBV_WC_LOC_QP_OP_ERR = 2;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_REM_INV_REQ_ERR = 9;
    IBV_WC_REM_ACCESS_ERR = 10;
    IBV_WC_REM_OP_ERR = 11;
    IBV_WC_RETRY_EXC_ERR = 12;
    IBV_WC_RNR_RETRY_EXC_ERR = 13;
    IBV_WC_REM_ABORT_ERR = 16;
    IBV_WC_RESP_TIMEOUT_ERR = 20;

    IBV_WC_WITH_IMM = 1 << 1;
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_header_says_the_same() {
        let mut c = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
        for claim in claims().into_iter().chain(claims_of_constants()) {
            c.push_str(&format!("_Static_assert({claim}, \"{claim}\");\n"));
        }
        let compiled = |text: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-fsyntax-only", "-x", "c", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut cc = cc.spawn()?;
            cc.stdin.take().expect("it is piped").write_all(text.as_bytes())?;
            cc.wait_with_output()
        };
        match compiled("#include <infiniband/verbs.h>\n") {
            Ok(there) if there.status.success() => {}
            _ => {
                let skipped = "SKIPPED: verbs header: no C compiler, or no libibverbs-dev";
                return writeln!(std::io::stderr(), "{skipped}").unwrap();
            }
        }
        let output = compiled(&c).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn the_library_has_what_is_called() {
        match Library::get() {
            Ok(library) => {
                let mut count = 0;
                // SAFETY: the count is there to be written to; the list is freed once, and not used.
                let list = unsafe { (library.ibv_get_device_list)(&mut count) };
                if !list.is_null() {
                    // SAFETY: as above.
                    unsafe { (library.ibv_free_device_list)(list) };
                }
            }
            Err(reason) => {
                assert!(reason.contains(FILE) && reason.contains("cannot open shared object"), "{reason}");
                writeln!(std::io::stderr(), "SKIPPED: libibverbs: it is not installed").unwrap();
            }
        }
    }
}
