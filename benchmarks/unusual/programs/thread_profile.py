"""Profiles its threads."""

import sys
import threading

from state import report

import fathom

seen = []


def work():
    for number in range(50):
        sum([number])
        fathom.step()


def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename == __file__:
        seen.append(frame.f_code.co_name)


threading.setprofile(profile)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(seen), sorted(set(seen)), sys.getprofile())
threading.setprofile(None)
report()
