"""What applications do with a memcached by its meta commands, through meta-memcache.

Usage: memcached_meta.py HOST PORT
"""

import sys

from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy

HOST, PORT = sys.argv[1], int(sys.argv[2])


def new_client():
    return CacheClient.cache_client_from_servers(
        servers=[ServerAddress(HOST, PORT)],
        connection_pool_factory_fn=connection_pool_factory_builder(connection_timeout=30, recv_timeout=30),
    )


def commands(client):
    client.invalidate("word")
    assert client.get("word") is None
    assert not client.set("word", "one", ttl=1000, set_mode=SetMode.REPLACE)
    assert client.set("word", "one", ttl=1000, set_mode=SetMode.ADD)
    assert not client.refill("word", "two", ttl=1000)
    assert client.get("word", touch_ttl=500) == "one"
    assert client.touch("word", ttl=1000)
    assert client.set("word", "!", ttl=1000, set_mode=SetMode.APPEND)
    assert client.set("word", "?", ttl=1000, set_mode=SetMode.PREPEND)
    assert client.get("word") == "?one!"
    assert client.delete("word") and not client.delete("word")
    assert not client.touch("word", ttl=1000)

    client.invalidate("number")
    assert client.delta_and_get("number", 1) is None
    assert client.delta_initialize_and_get("number", 1, initial_value=10, initial_ttl=1000) == 10
    assert client.delta("number", 5)
    assert client.delta_and_get("number", -20) == 0

    cas = client.set_cas("number", 6, ttl=1000)
    assert client.get_cas("number") == (6, cas)
    assert client.set("number", 7, ttl=1000, cas_token=cas)
    assert not client.set("number", 8, ttl=1000, cas_token=cas)
    assert not client.delete("number", cas_token=cas)
    assert client.get("number") == 7

    # Keys that are sent in base64, and values that are sent compressed.
    many = {Key(f"ключ {i}"): f"value{i}" * (1 + i % 50) for i in range(200)}
    for key, value in many.items():
        client.set(key, value, ttl=1000, no_reply=True)
    absent = Key("absent")
    assert client.multi_get([*many, absent]) == many | {absent: None}
    large = bytes(range(256)) * 3900
    assert client.set("large", large, ttl=1000) and client.get("large") == large
    client.delete("large", no_reply=True)
    assert client.get("large") is None


def herd(client, other):
    """Of several clients that miss, one is to bring a new value; the others wait, or take the old one."""
    client.invalidate("leased")
    lease = LeasePolicy(miss_retries=2)
    value, cas = client.get_or_lease_cas("leased", lease)
    assert value is None
    brought = lambda _: client.set("leased", "new", ttl=1000, cas_token=cas)
    assert other.get_or_lease("leased", lease, lease_wait_fn=brought) == "new"

    # It lives for less than it should.
    soon = RecachePolicy(ttl=2000)
    assert client.get("leased", recache_policy=soon) is None
    assert other.get("leased", recache_policy=soon) == "new"

    stale = StalePolicy(mark_stale_on_deletion_ttl=1000, mark_stale_on_cas_mismatch=True)
    assert client.set("leased", "old", ttl=1000)
    assert client.delete("leased", stale_policy=stale)
    value, cas = client.get_cas("leased")
    assert value is None and other.get("leased") == "old"
    assert client.delete("leased", stale_policy=stale)
    # What it brings is stale by now.
    assert client.set("leased", "late", ttl=1000, cas_token=cas, stale_policy=stale)
    assert client.get("leased") is None and other.get("leased") == "late"


commands(new_client())
herd(new_client(), new_client())
print("done")
