//! What this cache does otherwise than memcached 1.6.18, and why.

/// A difference, which is tested.
pub(crate) struct Exception {
    pub(crate) why: &'static str,
    /// What is sent. `L` is a key that is too long.
    pub(crate) send: &'static str,
    pub(crate) theirs: &'static [&'static str],
    pub(crate) ours: &'static [&'static str],
}

const CURRENT: &str = "the current release knows it";
const INJECTED: &str =
    "a value that is refused with its line is not taken for commands, as in the current release";
const WORDED: &str = "what is wrong with flags is said, but of ma, as in the current release";
const FURTHER: &str = "further words mean nothing, as in the current release";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";

pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        why: CURRENT,
        send: "mg a C1\r\nmg a N0 E1234 k\r\nmg a v C1234 c\r\n",
        theirs: &["EN", "CLIENT_ERROR invalid flag", "EN"],
        ours: &["EN", "HD ka W", "HD c#0 Z"],
    },
    Exception {
        why: CURRENT,
        send: "ms a 2 s\r\nhi\r\nms a 1 MA s\r\n!\r\nms b 1 MA\r\nx\r\nms b 1 MA N100 s\r\nx\r\nmg b v\r\n",
        theirs: &["HD", "HD", "NS", "NS", "EN"],
        ours: &["HD s2", "HD s3", "NS", "HD s1", "VA 1", "x\\r\\n"],
    },
    Exception {
        why: CURRENT,
        send: "ms a 2 F3\r\nhi\r\nmd a x\r\nmg a v f\r\nms a 2 F3\r\nhi\r\nmd a x I T100 F5\r\nmg a v f t\r\n",
        theirs: &["HD", BAD_FLAG, "VA 2 f3", "hi\\r\\n", "HD", BAD_FLAG, "VA 2 f3 t-1", "hi\\r\\n"],
        ours: &["HD", "HD", "VA 0 f0", "\\r\\n", "HD", "HD", "VA 0 f5 t~100 X W", "\\r\\n"],
    },
    Exception {
        why: CURRENT,
        send: "ms n 1 E77 c\r\n5\r\nma n E78 c\r\nmd n E79 I\r\nmg n c\r\n",
        theirs: &["CLIENT_ERROR invalid flag", BAD_FLAG, BAD_FLAG, "EN"],
        ours: &["HD c#0", "HD c#1", "HD", "HD c#2 X W"],
    },
    Exception {
        why: "a meta command without a key is no unknown one, as in the current release",
        send: "mg\r\nms\r\nmd\r\nma\r\n",
        theirs: &["ERROR", "ERROR", "ERROR", "ERROR"],
        ours: &[BAD_FORMAT, BAD_FORMAT, BAD_FORMAT, BAD_FORMAT],
    },
    Exception {
        why: "a quiet answer is left out when the number is made, too, as in the current release",
        send: "ma n N0 q\r\n",
        theirs: &["HD"],
        ours: &[],
    },
    Exception {
        why: INJECTED,
        send: "set L 0 0 8\r\ndelete a\r\nset a x 0 8\r\ndelete a\r\nms L 8\r\ndelete a\r\n",
        theirs: &[BAD_FORMAT, "NOT_FOUND", BAD_FORMAT, "NOT_FOUND", BAD_FORMAT, "NOT_FOUND"],
        ours: &[BAD_FORMAT, BAD_FORMAT, BAD_FORMAT],
    },
    Exception {
        why: INJECTED,
        send: "cas a 0 0 8\r\ndelete a\r\nset a 0 0 8 noreply x\r\ndelete a\r\n",
        theirs: &["ERROR", "NOT_FOUND", "ERROR", "NOT_FOUND"],
        ours: &[BAD_FORMAT, "STORED"],
    },
    Exception {
        why: FURTHER,
        send: "set a 0 0 1 x y noreply\r\nx\r\ntouch a 0 1\r\ndelete a 5\r\ndelete a 5\r\nincr n 1 2 3\r\nversion x y z\r\n",
        theirs: &[
            "ERROR",
            "ERROR",
            "NOT_FOUND",
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            "ERROR",
            "VERSION 1.6.18",
        ],
        ours: &["TOUCHED", "DELETED", "NOT_FOUND", "NOT_FOUND", "VERSION 1.6.18"],
    },
    Exception {
        why: "what is too short for a command is none, as in the current release",
        send: "m\r\nx\r\nmn\n",
        theirs: &["ERROR", "ERROR", "MN"],
        ours: &[BAD_FORMAT, BAD_FORMAT, BAD_FORMAT],
    },
    Exception {
        why: "times have 32 bits, as in the current release",
        send: "touch a 4294967296\r\ngat 4294967296 a\r\nmg a T4294967296\r\n",
        theirs: &["NOT_FOUND", "END", "EN"],
        ours: &[
            "CLIENT_ERROR invalid exptime argument",
            "CLIENT_ERROR invalid exptime argument",
            "CLIENT_ERROR bad token in command line format",
        ],
    },
    Exception {
        why: "a line of keys is answered key by key, so that neither it nor its answer must be held, and an answer that was given stays",
        send: "set a 0 0 2\r\nhi\r\nget a L a\r\n",
        theirs: &[BAD_FORMAT],
        ours: &["STORED", "VALUE a 0 2", "hi\\r\\n", BAD_FORMAT],
    },
    Exception {
        why: "there is no key, as in the current release",
        send: "gat 0\r\n",
        theirs: &["END"],
        ours: &[BAD_FORMAT],
    },
    Exception {
        why: "a key is shown as it was asked for, never as bytes that break the line",
        send: "mg AAEC b N0 k\r\nms Zm9v 1 b\r\nx\r\nmg foo k\r\n",
        theirs: &["HD k\\x00\\x01\\x02 W", "HD", "HD kZm9v b"],
        ours: &["HD kAAEC b W", "HD", "HD kfoo"],
    },
    Exception {
        why: "a key may have any byte but white space",
        send: "set a\0b 0 0 1\r\nx\r\n",
        theirs: &["ERROR", "ERROR"],
        ours: &["STORED"],
    },
    Exception {
        why: WORDED,
        send: "md a !\r\nma n v v\r\nma L\r\n",
        theirs: &[BAD_FLAG, BAD_FLAG, BAD_FORMAT],
        ours: &["CLIENT_ERROR invalid flag", BAD_FLAG, BAD_FLAG],
    },
    Exception {
        why: "what was flushed does not come back",
        send: "set a 0 0 2\r\nhi\r\nflush_all\r\nflush_all 1000\r\nget a\r\n",
        theirs: &["STORED", "OK", "OK", "VALUE a 0 2", "hi\\r\\n", "END"],
        ours: &["STORED", "OK", "OK", "END"],
    },
    Exception {
        why: "a number that is changed is a new value, which is not stale",
        send: "set n 0 0 1\r\n5\r\nmd n I\r\nincr n 1\r\nmg n v\r\n",
        theirs: &["STORED", "HD", "6", "VA 1 X W", "6\\r\\n"],
        ours: &["STORED", "HD", "6", "VA 1", "6\\r\\n"],
    },
    Exception {
        why: "the time to live is that of the item that stays, also if the number has become longer",
        send: "set n 0 0 1\r\n9\r\nma n T100\r\nmg n t\r\n",
        theirs: &["STORED", "HD", "HD t-1"],
        ours: &["STORED", "HD", "HD t~100"],
    },
    Exception {
        why: "commands for memcached's own memory and threads are answered as where they are switched off, or cannot be carried out",
        send: "cache_memlimit 63\r\nbget a\r\nstats detail off\r\nshutdown\r\n",
        theirs: &["OK", "END", "OK", "ERROR: shutdown not enabled"],
        ours: &[
            "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
            "ERROR",
            "CLIENT_ERROR stats detail not allowed",
            "SERVER_ERROR: shutdown not enabled",
        ],
    },
];
