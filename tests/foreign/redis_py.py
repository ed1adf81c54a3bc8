"""Locks a key by redis-py's Lock, as it is told on standard input: see redis_py.rs."""

import random
import sys
import time

import redis

port, key, counter, turns = int(sys.argv[1]), *sys.argv[2:]
client = redis.Redis(port=port)
lock = client.lock(key, timeout=60, sleep=0.001)
token = b""


def count():
    """A process that is not alone here loses a count."""
    n = int(client.get(counter) or 0)
    client.set(counter, n + 1)
    client.rpush(turns, "theirs")


def take():
    global token
    lock.acquire()
    token = lock.local.token
    count()
    return token.decode()


def free():
    lock.release()
    return "out"


def attempt():
    return "in" if lock.acquire(blocking=False) else "busy"


def steal():
    """What release() sends, with the token of the last hold: how much it deleted."""
    return str(lock.lua_release(keys=[key], args=[token]))


def contend(rounds):
    for _ in range(int(rounds)):
        with lock:
            count()
        time.sleep(random.uniform(0, 0.02))
    return "done"


print(redis.__version__, flush=True)
for line in sys.stdin:
    name, *args = line.split()
    print(globals()[name](*args), flush=True)
