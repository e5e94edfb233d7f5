"""M/M/1 in simpy: requests at random to one server, of which they take 70 %."""
import json
import random
import sys
import time

import simpy

COUNT = int(sys.argv[1])
IN_SYSTEM = [0.0]


def customer(env, server):
    came = env.now
    with server.request() as turn:
        yield turn
        yield env.timeout(random.expovariate(1 / 0.7))
    IN_SYSTEM[0] += env.now - came


def source(env, server):
    for _ in range(COUNT):
        yield env.timeout(random.expovariate(1.0))
        env.process(customer(env, server))


random.seed(1)
env = simpy.Environment()
env.process(source(env, simpy.Resource(env)))
cpu, wall = time.process_time(), time.perf_counter()
env.run()
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
assert IN_SYSTEM[0] > 0
print(json.dumps({"requests": COUNT, "events": 2 * COUNT, "cpu_s": cpu, "wall_s": wall}))
