"""The measuring process: `python -m fathom.gauges JOB` writes results as JSON lines to standard output.

It is a separate process so that its parent never holds a CUDA context and survives any crash here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from importlib import import_module

from fathom.gauges.catalogue import BY_ID, HOST, scope
from fathom.gauges.contention import Contention
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import NotHereError, is_fatal
from fathom.machine import Ceiling, Missing
from fathom.machine.model import Conditions

Emit = Callable[[dict[str, object]], None]


def main() -> None:
    """Measure the job given as the only argument."""
    emit = claim_output()
    job = GaugeJob.from_json(sys.argv[1])
    for name in job.ids:
        emit({"begin": name})
        for record in _measure(name, job):
            emit({"ceiling" if isinstance(record, Ceiling) else "missing": asdict(record)})
        emit({"end": name})


def claim_output() -> Emit:
    """Return a function that writes records to standard output; redirect other output to standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lambda record: print(json.dumps(record), file=lines, flush=True)


def _measure(name: str, job: GaugeJob) -> Iterable[Ceiling | Missing]:
    try:
        gauge = import_module(f"fathom.gauges.{BY_ID[name].group}").GAUGES[name]
        with Contention() as contention:
            results = gauge(job)
        results = [results] if isinstance(results, Ceiling) else results
        return [_marked(result, contention) if scope(name) == HOST else result for result in results]
    except NotHereError as error:
        return [Missing(id=name, why=str(error))]
    except ImportError as error:
        return [Missing(id=name, why=f"{error.name or 'a Python package'} is not installed")]
    except Exception as error:
        if is_fatal(error):
            raise
        return [Missing(id=name, why=_clause(error))]


def _marked(result: Ceiling | Missing, contention: Contention) -> Ceiling | Missing:
    """Add to a host ceiling the share of the processors that other processes used during the measurement."""
    if isinstance(result, Missing):
        return result
    conditions: Conditions = {**result.conditions, "others": round(contention.others, 3)}
    return replace(result, conditions=conditions, flags=[*result.flags, *contention.flags])


def _clause(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {line[:200]}" if line else type(error).__name__


if __name__ == "__main__":
    main()
