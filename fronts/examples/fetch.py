# SPDX-License-Identifier: MIT OR Apache-2.0
"""A client that is controlled, as fetch.c: fetch.py PREFIX SITE HOST ADDRESS:PORT...

It needs libsidelong.so where the loader finds it (`make -C fronts && sudo make -C fronts install && sudo ldconfig`).
"""

import ctypes
import http.client
import socket
import sys

CHOSEN = 0
# Servers that one request may be sent to.
ATTEMPTS = 3


class Site(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("found", ctypes.c_uint64), ("turns", ctypes.c_uint64)]


class Request(ctypes.Structure):
    _fields_ = [
        ("node", ctypes.c_uint),
        ("stage", ctypes.c_uint),
        ("counts", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
    ]


Usable = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint)


def library():
    lib = ctypes.CDLL("libsidelong.so.1")
    lib.sidelong_front_open.restype = ctypes.c_void_p
    lib.sidelong_front_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    lib.sidelong_node.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.sidelong_choose.argtypes = [
        ctypes.c_void_p, ctypes.POINTER(Site), Usable, ctypes.c_void_p, ctypes.POINTER(Request),
    ]
    lib.sidelong_answered.argtypes = [ctypes.POINTER(Request), ctypes.c_bool]
    lib.sidelong_failed.argtypes = [ctypes.POINTER(Request), ctypes.c_bool]
    lib.sidelong_ended.argtypes = [ctypes.POINTER(Request)]
    return lib


def sockaddr(address, port):
    """A struct sockaddr_in."""
    family = socket.AF_INET.to_bytes(2, sys.byteorder)
    return family + port.to_bytes(2, "big") + socket.inet_aton(address) + bytes(8)


def main(prefix, name, host, *addresses):
    lib = library()
    why = ctypes.create_string_buffer(256)
    front = lib.sidelong_front_open(prefix.encode(), why)
    if not front or why.value:
        sys.exit(f"fetch: {why.value.decode()}")
    # A program that stays looks its servers up again when sidelong_generation changes.
    servers = {}
    for at in addresses:
        address, port = at.rsplit(":", 1)
        servers[lib.sidelong_node(front, sockaddr(address, int(port)))] = (address, int(port))
    site = Site(name.encode())
    usable = Usable(lambda _, node: node in servers)
    for _ in range(ATTEMPTS):
        request = Request()
        if lib.sidelong_choose(front, site, usable, None, request) != CHOSEN:
            break
        address, port = servers[request.node]
        try:
            connection = http.client.HTTPConnection(address, port, timeout=10)
            connection.request("GET", "/", headers={"Host": host})
            answer = connection.getresponse()
            lib.sidelong_answered(request, answer.status < 400)
            print(answer.read().decode())
            return
        except ConnectionRefusedError:
            lib.sidelong_failed(request, True)
        except OSError:
            lib.sidelong_failed(request, False)
            raise
        finally:
            # Until here the node does not leave the site.
            lib.sidelong_ended(request)
    sys.exit(f"fetch: no server of {name} is usable")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__.splitlines()[0])
    main(*sys.argv[1:])
