#!/bin/sh
# The cache that other makes' tests start by memcached's name. A test links it instead of writing it, because a program that is
# still open for writing cannot be started.
exec "$SIDELONG" cache "$@"
