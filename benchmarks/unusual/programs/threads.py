"""Makes steps in 8 threads at once, which end while others begin."""

import threading

from state import report

import fathom


def work():
    for _ in range(500):
        fathom.step()


for _ in range(3):
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
report()
