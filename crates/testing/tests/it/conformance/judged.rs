//! Where proxies differ: which one is strict, and why an edge is.

/// Why a case expects what it does, if its name says too little.
pub(crate) fn why(name: &str) -> Option<&'static str> {
    let fitting = JUDGED.iter().filter(|(begin, _)| name.starts_with(begin));
    fitting.max_by_key(|(begin, _)| begin.len()).map(|(_, why)| *why)
}

/// Cases by how their names begin, with the reason; the longest beginning counts.
pub(crate) const JUDGED: &[(&str, &str)] = &[
    (
        "9112-3: two spaces",
        "A request line has single spaces. RFC 9112 allows to split at white space, and then two recipients may \
      disagree where the target ends; an edge refuses, as the section advises where smuggling is possible",
    ),
    (
        "9112-3: a space in the target",
        "Nobody may know where the target ends. The section says 400, and not to repair it",
    ),
    (
        "9112-3.2: a path without its slash",
        "It is no form of a target. A server that appends it to a host reaches another host",
    ),
    ("9112-3.2: a target that an appended host", "`http://server` and `@evil/` make a URL of the host evil"),
    (
        "9112-3.2: a fragment",
        "A fragment is never sent. Who cuts it off and who does not see different paths",
    ),
    (
        "9112-3.2.2: another scheme",
        "An edge serves http and https. What another scheme's target names is not its to say",
    ),
    (
        "9112-3.2.2: the authority differs",
        "RFC 9112 lets the authority win. An edge refuses: whoever sends both means harm or errs, and a \
      server or a log that goes by the Host would take another site",
    ),
    (
        "9112-3.2.2: an absolute target",
        "A gateway passes on the path alone; some servers do not serve the absolute form",
    ),
    (
        "9110-4.2.4:",
        "A user before the host is a means of deception, and an error from a source that is not trusted",
    ),
    ("9112-3.2.4:", "An asterisk stands for the server, and only OPTIONS may ask for it"),
    ("9112-2.3: a minor version of two digits", "A version has one digit on each side of its point"),
    ("9112-2.3: HTTP/2.0", "HTTP/2 does not begin like this. 505, or 400"),
    (
        "9112-2.3: a request of HTTP/0.9",
        "It is not spoken any more: an answer without a head cannot be told from a broken one",
    ),
    (
        "9112-2.2: line feeds alone",
        "RFC 9112 allows to take a line feed alone for a line end, and does not require it. Where one recipient does \
      and another does not, a value becomes a field. An edge refuses",
    ),
    (
        "9112-2.2: a line feed alone",
        "As for line feeds alone: where two recipients disagree, a value becomes a field",
    ),
    (
        "9110-5.5: a line feed alone",
        "As for line feeds alone: what is a value for one recipient is a Content-Length for another",
    ),
    ("9112-3.2: no Host", "400 is required, not 421: the request is wrong, whichever sites there are"),
    ("9112-3.2: a Host twice", "400 is required for more than one, also if they are equal"),
    ("9112-3.2: a port of", "A Host is a host and digits. A port that is none is an invalid value: 400"),
    (
        "9112-3.2: ",
        "400 is required for a Host with an invalid value; 421 is for a valid one that is not served",
    ),
    ("9110-9.3.8:", "TRACE sends back what a client may not see, such as fields that proxies add"),
    ("9110-9.3.6:", "CONNECT is for proxies that the client chose. An edge is none"),
    (
        "9110-7.6.2:",
        "Max-Forwards is required of every recipient of an OPTIONS: at 0 it answers itself, otherwise it counts down",
    ),
    (
        "9112-5: ",
        "A line that is no field is an error. nginx leaves such lines out, and then the next recipient and the log know less",
    ),
    (
        "9110-5.5: ",
        "A control byte in a value is an error, and dangerous for whoever reads it next. It is never passed on",
    ),
    (
        "9112-5.2:",
        "A server must refuse a folded line or replace it. An edge refuses: folds have hidden framing fields",
    ),
    (
        "9110-7.6.1: Connection names",
        "A name in Connection is taken away. No client may take away what the server needs or trusts",
    ),
    (
        "9110-7.6.1: Connection has",
        "Connection is a list of names. A value that is none is an error, and 60 names are no list of options",
    ),
    ("9110-5.6.2:", "All bytes of a token may stand in a name"),
    (
        "9110-5.1:",
        "A name with an underscore is a name. A server that confuses it with a hyphen must be told so where it is configured",
    ),
    (
        "9110-7.6.1:",
        "These fields are for one connection. An intermediary must take them away, and those that Connection names",
    ),
    ("9110-10.1.4:", "TE is for one connection, and an edge has no coding to offer to a server"),
    ("9110-7.8: Upgrade that", "Without Connection: upgrade it is no upgrade, and is not passed on"),
    ("9110-7.8: Upgrade in HTTP/1.0", "An Upgrade in HTTP/1.0 must be ignored"),
    (
        "9113-3.1:",
        "RFC 9113 has taken h2c out. A server that upgrades turns the connection into a tunnel past all checks",
    ),
    ("7239-5.2:", "The list of addresses goes on whole and in order; only its last one is certain"),
    (
        "9112-6.3: content-length",
        "Both together are how requests are smuggled. RFC 9112 lets a server refuse; an edge does",
    ),
    ("9112-6.3: transfer-encoding", "As for content-length and transfer-encoding"),
    (
        "9112-6.3: two lengths",
        "Equal lengths may be taken for one. An edge refuses: no sender of good will writes two",
    ),
    ("9112-6.3: a list of", "As for two lengths"),
    ("9110-8.6: a list of", "As for two lengths"),
    ("9110-8.6: a 204", "A 204 has no Content-Length, and a client might wait for the body"),
    ("9112-6.1: a 204", "A 204 has no Transfer-Encoding, and a client might wait for the last chunk"),
    ("9112-6.1: a tab after", "White space around a value is a space or a tab"),
    (
        "9112-6.1: transfer-encoding in HTTP/1.0",
        "The framing must be taken as faulty: some recipient before may have passed on what it did not know",
    ),
    (
        "9112-6.1: an answer",
        "A coding other than chunked is not one that an edge has asked for. What it cannot read it does not pass on",
    ),
    (
        "9112-6.1:",
        "Of the codings an edge knows chunked alone, once. Whatever else is there is refused, with 400 or 501",
    ),
    (
        "9112-7.1: a line feed alone",
        "A chunk's line ends in CR LF. Recipients that differ here see different chunks",
    ),
    ("9112-7.1: a space", "The grammar has no white space before a size"),
    ("9112-7.1: an answer", "A client must be able to tell that its answer is not whole"),
    ("9112-7.1: bytes after", "They are another request, and no request: 400"),
    (
        "9112-7.1:",
        "A body that is not what the grammar says ends with 400 and the connection. The server never sees it whole",
    ),
    (
        "9112-7.1.1:",
        "Extensions are read and dropped. Their bytes are counted, because a client may send them without end",
    ),
    ("9112-7.1.2: trailers of", "Trailers go on in a chunked body. They are never merged into the head"),
    ("9112-7.1.2:", "Trailers are fields. What is no field line is an error, as in a head"),
    (
        "9110-6.5.1:",
        "A trailer must not frame, route or authenticate: it is left out, or the request refused",
    ),
    ("9110-15.5.14: a length", "The limit is known, and so is the length: nothing is passed on"),
    ("9112-6.3: bytes after", "They are another request, and no request: 400"),
    (
        "9112-6.3: an answer of HTTP/1.0",
        "An answer until the server closes is given to HTTP/1.1 in chunks, so that its end is known",
    ),
    ("9112-6.3: an answer until its server closes", "As above. To HTTP/1.0 it goes until the edge closes"),
    ("9112-6.3: an answer with", "The answer's end is in doubt, so nothing of it is passed on"),
    ("9112-9.3.2:", "Requests that come together are answered all, in order"),
    ("9112-2.2: an empty line after", "Old clients send an empty line after a body. It is no request"),
    ("9110-10.1.1: an expectation in HTTP/1.0", "A client of HTTP/1.0 knows no 100"),
    (
        "9110-10.1.1:",
        "Only the server knows whether it wants the body. An edge that says 100 by itself takes bodies that are refused",
    ),
    ("9110-15.2: no early hints", "A client of HTTP/1.0 knows no interim answers"),
    ("9110-15.2:", "Interim answers are passed on, and a final answer is awaited after them"),
    ("9110-7.8: a 101", "A server that switches without being asked would open a tunnel past all checks"),
    (
        "9110-8.6: an answer",
        "A length is digits. nginx takes what it cannot read for none, and reads until the server closes",
    ),
    ("9112-2.2: an answer", "As for requests: line feeds alone are refused"),
    (
        "9112-5: an answer",
        "A field line that is none is an error. Passed on, it splits the answer at the next recipient",
    ),
    ("9112-5.2: an answer", "A proxy must refuse a folded line or replace it. An edge refuses"),
    ("9112-4:", "A status line is a version, a space, three digits, a space. What is none is no answer: 502"),
    (
        "9110-15: a status",
        "A status is 100 to 599. RFC 9110 lets a client take others for a 5xx; an edge says 502",
    ),
    ("9112-2.3: an answer", "The major version is another protocol's"),
    ("9112-8:", "A client must be able to tell that its answer is not whole"),
    ("6585-5: an answer", "A head is bounded. A server without a bound is not waited for"),
    ("9112-7.1: an answer in chunks to HTTP/1.0", "A client of HTTP/1.0 knows no chunks"),
    (
        "9112-9.3: an answer in chunks to HTTP/1.0",
        "It knows no chunks, keep-alive or not, and so the connection ends the body",
    ),
    ("9112-9.3: an answer before", "An answer that has come is passed on, also while the body is being sent"),
    ("9112-9.3: HTTP/1.0", "A proxy sends its own version"),
    ("9110-2.5:", "A proxy sends its own version"),
    (
        "9112-6.3: a second answer",
        "Bytes after an answer belong to no request. The connection is not used again",
    ),
    ("9112-6.3: a body after", "As for a second answer"),
    ("9110-9.1:", "A method that is not known is the server's to judge, and methods differ by case"),
    ("9113-8.2.2:", "These fields are for a connection of HTTP/1.1. A request with one is malformed"),
    (
        "9113-8.2.1:",
        "What is no field in HTTP/1.1 must not become one, or more than one, when it is written there",
    ),
    (
        "9113-8.3",
        "Pseudo-headers become a request line and a Host. What would be refused there is refused here",
    ),
    (
        "9113-8.1.1:",
        "A length that is not that of the body is an error, which HTTP/1.1 makes a second request",
    ),
    (
        "8441-3:",
        "A browser asks for a WebSocket over HTTP/2 only where it is announced, and otherwise makes a connection for each",
    ),
    (
        "8441-4: a tunnel of another",
        "HTTP/1.1 has no other tunnel that begins like this. A GET is not what was asked for",
    ),
    (
        "8441-4: a WebSocket with a length",
        "What a tunnel carries has no length, and a GET with one would have a body",
    ),
    ("8441-4: a WebSocket", "As for GET: what would be refused in a request line is refused here"),
    (
        "8441-5: a WebSocket",
        "nginx has no RFC 8441. The server's Sec-WebSocket-Accept answers a key that the client has not sent",
    ),
    (
        "8441-5: a server that does not",
        "Over HTTP/2 any 2xx opens the tunnel. An edge does not say so for a server that has not switched",
    ),
    ("8441-5: a server that refuses", "A server may refuse, and its answer is passed on"),
    (
        "6455-4.1:",
        "The client cannot check what the server accepts, since the key is the edge's. So the edge does, in full",
    ),
    ("9110-15.5.9:", "The client's fault is answered as such. 504 says that the server was slow"),
];
