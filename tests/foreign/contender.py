"""A worker of tests/faults/history/peers.rs: threads that take locks by redis-py's Lock and write down what they got."""

import os
import random
import sys
import threading
import time

import redis

port, log, process, seed = sys.argv[1:]
client = redis.Redis(port=int(port), socket_timeout=0.45, socket_connect_timeout=0.45)
journal = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
stop = threading.Event()


def work(dice):
    n = dice.random()
    if n < 0.003:
        return 0.9 * dice.uniform(1, 1.5)
    return dice.uniform(0, 0.001 if n < 0.7 else 0.01 if n < 0.85 else 0.1)


def play(thread):
    dice = random.Random(f"{seed} {thread}")
    number = 0

    def note(text):
        os.write(journal, f"{time.monotonic_ns() // 1000} {process}.{thread}.{number} {text}\n".encode())

    while not stop.is_set():
        number += 1
        name = dice.choice("aabc")
        lock = client.lock(name, timeout=0.9, blocking_timeout=2)
        note(f"called {name} TryLockFor")
        try:
            got = lock.acquire()
        except Exception as error:
            note(f"ended {type(error).__name__}")
            time.sleep(0.02)
            continue
        if not got:
            note("ended none")
            continue
        note("held 0 0")
        time.sleep(work(dice))
        note("release 0")
        try:
            lock.release()
            note("released ok")
        except Exception as error:
            note(f"released {type(error).__name__}")
        time.sleep(dice.uniform(0, 0.002))


threads = [threading.Thread(target=play, args=(n,)) for n in range(1, 5)]
for thread in threads:
    thread.start()
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join()
