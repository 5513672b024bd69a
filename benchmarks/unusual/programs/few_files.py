"""Lowers the number of files that it may open, and uses all of them."""

import os
import resource

import fathom

for _ in range(20):
    fathom.step()
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        fathom.step()
except OSError as error:
    print(len(opened), error.errno)
for _ in range(500):
    fathom.step()
for file in opened:
    os.close(file)
