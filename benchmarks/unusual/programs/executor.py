"""Computes in forked processes of an executor."""

import concurrent.futures
import multiprocessing

import fathom


def square(number):
    fathom.step()
    return number * number


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        for _ in range(30):
            fathom.step()
        print(sum(pool.map(square, range(40))))
