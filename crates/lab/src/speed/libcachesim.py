"""One LRU cache of libCacheSim: 20,000 objects by Zipf's law, a tenth of which it holds, read from a binary trace."""
import json
import os
import random
import struct
import sys
import time
from bisect import bisect
from itertools import accumulate

import libcachesim

COUNT, PATH = int(sys.argv[1]), sys.argv[2]
OBJECTS, ALPHA, BYTES = 20_000, 0.9, 4_096

if not os.path.exists(PATH):
    random.seed(1)
    sums = list(accumulate((i + 1) ** -ALPHA for i in range(OBJECTS)))
    with open(PATH + ".part", "wb") as trace:
        for i in range(COUNT):
            key = bisect(sums, random.random() * sums[-1])
            trace.write(struct.pack("<IQIq", i // 1000, key, BYTES, -1))
    os.rename(PATH + ".part", PATH)

reader = libcachesim.TraceReader(PATH, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
cache = libcachesim.LRU(OBJECTS // 10 * BYTES)
cpu, wall = time.process_time(), time.perf_counter()
miss_ratio, _ = cache.process_trace(reader)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
assert 0 < miss_ratio < 1
print(json.dumps({"requests": COUNT, "events": COUNT, "cpu_s": cpu, "wall_s": wall}))
