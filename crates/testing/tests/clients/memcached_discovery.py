"""A client that knows one cache finds all by Amazon ElastiCache's auto discovery: those that the arguments name."""

import sys

from elasticache_auto_discovery import discover

expected = sys.argv[1:]
found = [f"{ip.decode()}:{port.decode().strip()}" for _host, ip, port in discover(expected[0], 10)]
assert found == expected, found
