"""Makes its steps in tasks of asyncio, some of which are cancelled."""

import asyncio

from state import report

import fathom


async def work(name):
    try:
        for _ in range(30):
            with fathom.region(name):
                await asyncio.sleep(0)
            fathom.step()
    except asyncio.CancelledError:
        print("cancelled", name)
        raise
    return name


async def main():
    tasks = [asyncio.create_task(work(str(number))) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    print(await asyncio.gather(*tasks, return_exceptions=True))


asyncio.run(main())
report()
