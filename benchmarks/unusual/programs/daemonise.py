"""Becomes a daemon that closes all its files and writes into new ones."""

import os
import sys
import time

import fathom

for _ in range(20):
    fathom.step()
sys.stdout.flush()
reading, writing = os.pipe()
if os.fork():
    os.close(writing)
    sys.stdout.write(os.read(reading, 100_000).decode())
    sys.exit(6)
os.setsid()
if os.fork():
    os._exit(0)
kept = os.dup2(writing, 63)
os.closerange(0, 63)
files = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
log = os.open("daemon.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for number in range(300):
    fathom.step()
    os.write(log, b"%d\n" % number)
time.sleep(0.01)
os.write(kept, b"%r %d" % (files, log) + os.pread(log, 10_000, 0))
os._exit(0)
