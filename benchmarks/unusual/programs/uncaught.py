"""Ends with an exception that nobody catches, in a region."""

import fathom


@fathom.region("work")
def work(number):
    return 1 / (3 - number)


for number in range(5):
    work(number)
    fathom.step()
