"""What applications do with a memcached, by two clients: libmemcached (through pylibmc) and pymemcache.

Usage: memcached.py HOST PORT
"""

import sys
import time

import pylibmc
import pymemcache

HOST, PORT = sys.argv[1], int(sys.argv[2])


def by_libmemcached(binary):
    client = pylibmc.Client([f"{HOST}:{PORT}"], binary=binary, behaviors={"cas": True})
    client.flush_all()

    assert client.set("word", "one")
    assert client.get("word") == "one"
    assert not client.add("word", "two")
    assert client.replace("word", "three")
    assert client.append("word", "!") and client.prepend("word", "?")
    assert client.get("word") == "?three!"
    assert client.delete("word") and client.get("word") is None

    assert client.set("number", 1)
    assert client.incr("number", 9) == 10
    assert client.decr("number", 20) == 0

    many = {f"key{i}": f"value{i}" * (i % 50) for i in range(2000)}
    assert client.set_multi(many) == []
    assert client.get_multi(list(many)) == many

    large = bytes(range(256)) * 3900
    assert client.set("large", large) and client.get("large") == large
    try:
        client.set("too-large", b"x" * (2 << 20))
        raise AssertionError("2 MiB were stored")
    except pylibmc.Error:
        pass

    if not binary:
        value, cas = client.gets("number")
        assert client.cas("number", 7, cas) and client.get("number") == 7
        assert not client.cas("number", 8, cas)

    assert client.set("short", "lived", time=1)
    time.sleep(2.1)
    assert client.get("short") is None
    (_, stats), = client.get_stats()
    assert int(stats["curr_items"] if "curr_items" in stats else stats[b"curr_items"]) >= 500  # of 2000, if three share them


def by_pymemcache():
    client = pymemcache.Client((HOST, PORT))
    client.flush_all()
    client.set("word", "one", noreply=True)
    assert client.get("word") == b"one"
    value, cas = client.gets("word")
    assert client.cas("word", "two", cas) is True
    assert client.cas("word", "three", cas) is False
    assert client.touch("word", 1000) and client.get("word") == b"two"
    assert client.gat("word", 1000) == b"two" if hasattr(client, "gat") else True
    assert client.set_many({f"key{i}": str(i) for i in range(1000)}) == []
    assert len(client.get_many([f"key{i}" for i in range(1000)])) == 1000
    assert client.incr("key7", 3) == 10
    assert client.delete("word") and client.get("word") is None
    assert client.version()
    try:
        client.set("k" * 251, "too long a key")
        raise AssertionError("a key of 251 bytes was stored")
    except pymemcache.exceptions.MemcacheIllegalInputError:
        pass


by_libmemcached(binary=False)
by_libmemcached(binary=True)
by_pymemcache()
print("done")
