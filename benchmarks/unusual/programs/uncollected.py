"""Turns garbage collection off and has cycles with finalizers."""

import gc

import fathom

gc.disable()


class Node:
    count = 0

    def __del__(self):
        Node.count += 1


for _ in range(200):
    node = Node()
    node.me = node
    fathom.step()
print(Node.count, gc.isenabled(), len(gc.callbacks) >= 0)
print(gc.collect() >= 200, Node.count)
