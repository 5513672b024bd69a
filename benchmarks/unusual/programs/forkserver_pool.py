"""Computes in a pool of processes of a fork server."""

import multiprocessing

import fathom


def square(number):
    fathom.step()
    return number * number


if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        for _ in range(5):
            print(sum(pool.map(square, range(10))))
            fathom.step()
