"""A stand-in for NVIDIA's `ncu_report`: the calls of its documentation, over two launches of one kernel."""

import os
from pathlib import Path

_STALLED = "smsp__pcsamp_warps_issue_stalled_"


class IMetric:
    def __init__(self, value, unit="", places=None):
        self._value, self._unit, self._places = value, unit, places

    def value(self):
        return self._value

    def unit(self):
        os.abort()  # as the real one does

    def num_instances(self):
        return len(self._places or {})

    def has_correlation_ids(self):
        return self._places is not None

    def correlation_ids(self):
        return IMetric(None, places=dict(enumerate(self._places)))

    def as_double(self, number):
        return float(list(self._places.values())[number])

    def as_uint64(self, number):
        return int(self._places[number])


class _Source:
    def __init__(self, line):
        self._line = line

    def file_name(self):
        return "/home/me/k.cu"

    def line(self):
        return self._line


class IAction:
    NameBase_FUNCTION, NameBase_DEMANGLED = 0, 1
    WorkloadType_KERNEL = 0

    def __init__(self, duration, kind=0):
        self._kind = kind
        shape = {
            f"launch__{what}_dim_{axis}": IMetric(size)
            for what, sizes in (("grid", (32, 1, 1)), ("block", (256, 1, 1)))
            for axis, size in zip("xyz", sizes, strict=True)
        }
        self._metrics = {
            **shape,
            "gpu__time_duration.sum": IMetric(duration, "ns"),
            "launch__device_id": IMetric(1),
            "launch__stream_id": IMetric(7),
            "launch__func_cache_config": IMetric("CachePreferNone"),
            "device__attribute_display_name": IMetric("NVIDIA H200"),
            "broken__metric.sum": IMetric(None),
            "nan__metric.sum": IMetric(float("nan")),
            _STALLED + "long_scoreboard": IMetric(100, places={0x100: 100}),
            _STALLED + "selected": IMetric(20, places={0x100: 10, 0x110: 10}),
            _STALLED + "long_scoreboard_not_issued": IMetric(90, places={0x100: 90}),
            "derived__memory_l2_theoretical_sectors_global_excessive": IMetric(28, places={0x100: 28}),
        }

    def name(self, base=0):
        return "void saxpy<float>(int, T1, T1 *, T1 *)" if base else "saxpy"

    def workload_type(self):
        return self._kind

    def metric_names(self):
        return list(self._metrics)

    def metric_by_name(self, name):
        return self._metrics.get(name)

    def sass_by_pc(self, place):
        return {0x100: "LDG.E R2, [R4.64]", 0x110: "FFMA R3, R2, R5, R6"}[place]

    def source_info(self, place):
        return _Source({0x100: 2, 0x110: 3}[place])

    def source_files(self):
        return {"/home/me/k.cu": "__global__ void saxpy()\nfloat v = x[32 * i];\ny[i] = a * v;\n"}


class _Range:
    def __init__(self, actions):
        self._actions = actions

    def num_actions(self):
        return len(self._actions)

    def action_by_idx(self, number):
        return self._actions[number]


class IContext:
    def __init__(self, ranges):
        self._ranges = ranges

    def num_ranges(self):
        return len(self._ranges)

    def range_by_idx(self, number):
        return self._ranges[number]


def load_report(path):
    data = Path(path).read_bytes()
    if b"bad" in data:
        raise RuntimeError("Failed to load report\nsecond line")
    if b"none" in data:
        return IContext([_Range([IAction(1, kind=3)])])
    return IContext([_Range([IAction(10_000)]), _Range([IAction(1, kind=3), IAction(11_000)])])
