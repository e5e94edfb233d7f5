"""What applications do with a memcached that serves TLS (pymemcache), or asks for a login by SASL (libmemcached, through pylibmc).

Usage: memcached_secured.py tls HOST PORT CERTIFICATE
       memcached_secured.py sasl HOST PORT
"""

import ssl
import sys

import pylibmc
import pymemcache

WAY, HOST, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])


def fails(ask, *errors):
    try:
        ask()
    except errors:
        return
    raise AssertionError("it was answered")


def tls(certificate):
    context = ssl.create_default_context(cafile=certificate)
    client = pymemcache.Client((HOST, PORT), tls_context=context, timeout=30)
    many = {f"key{i}": b"value%d" % i * (i % 50) for i in range(500)}
    assert client.set_many(many) == []
    assert client.get_many(list(many)) == many
    large = bytes(range(256)) * 3900
    assert client.set("large", large) and client.get("large") == large
    # More than any buffer has room for, asked for before anything is read.
    client.sock.sendall(b"get large\r\n" * 30)
    wanted = (b"VALUE large 0 %d\r\n" % len(large) + large + b"\r\nEND\r\n") * 30
    got = bytearray()
    while len(got) < len(wanted):
        got += client.sock.recv(1 << 20)
    assert got == wanted
    fails(pymemcache.Client((HOST, PORT), timeout=30).version, OSError, pymemcache.exceptions.MemcacheError)
    stranger = pymemcache.Client((HOST, PORT), tls_context=ssl.create_default_context(), timeout=30)
    fails(stranger.version, ssl.SSLError)


def sasl():
    def client(**login):
        return pylibmc.Client([f"{HOST}:{PORT}"], binary=True, **login)

    ann = client(username="ann", password="secret")
    assert ann.set("word", "one") and ann.get("word") == "one"
    many = {f"key{i}": f"value{i}" for i in range(500)}
    assert ann.set_multi(many) == [] and ann.get_multi(list(many)) == many
    fails(lambda: client(username="ann", password="other").set("word", "two"), pylibmc.Error)
    fails(lambda: client().set("word", "two"), pylibmc.Error)
    assert ann.get("word") == "one"


if WAY == "tls":
    tls(sys.argv[4])
else:
    sasl()
