"""The try of PC sampling: structures as CUDA 13.0 lays them out, and calls on a fake library."""

from __future__ import annotations

import ctypes as c

import pytest

from benchmarks.counters import pc_sampling as pcs

# sizeof and offsetof, printed by a C program that includes the header (gcc, x86-64).
SIZES = {
    pcs.StallReason: 8,
    pcs.Pc: 64,
    pcs.Data: 80,
    pcs.Attribute: 32,
    pcs.OfContext: 24,
    pcs.Configuration: 40,
    pcs.Reading: 32,
    pcs.HowMany: 32,
    pcs.Named: 48,
}
NAMES = ["smsp__pcsamp_warps_issue_stalled_wait", "smsp__pcsamp_warps_issue_stalled_long_scoreboard"]


def test_structures_are_laid_out_as_in_the_header() -> None:
    assert {kind: c.sizeof(kind) for kind in SIZES} == SIZES
    assert (pcs.Pc.correlation.offset, pcs.Pc.function.offset) == (56, 32)
    assert (pcs.Data.full.offset, pcs.Data.pc.offset, pcs.Attribute.value.offset) == (72, 56, 8)


class FakeCupti:
    """Writes through the pointers that it gets, as the library does."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses, self.calls, self.set, self.reads = refuses, [], {}, 0

    def __getattr__(self, name: str):
        def call(reference) -> int:
            self.calls.append(name.removeprefix("cuptiPCSampling"))
            if self.calls[-1] == self.refuses:
                return 35
            getattr(self, f"_{self.calls[-1]}", lambda parameters: None)(reference._obj)
            return 0

        if not name.startswith("cuptiPCSampling"):
            raise AttributeError(name)
        return call

    def cuptiGetResultString(self, code: int, words) -> None:  # noqa: N802
        words._obj.value = b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"

    def _Enable(self, parameters) -> None:  # noqa: N802
        assert (parameters.size, parameters.context, parameters.private) == (24, 7, None)

    def _GetNumStallReasons(self, parameters) -> None:  # noqa: N802
        parameters.count[0] = len(NAMES)

    def _GetStallReasons(self, parameters) -> None:  # noqa: N802
        places = c.cast(parameters.names, c.POINTER(c.c_void_p))
        for place, name in enumerate(NAMES):
            parameters.indices[place] = 40 + place
            c.memmove(places[place], name.encode() + b"\0", len(name) + 1)

    def _SetConfigurationAttribute(self, parameters) -> None:  # noqa: N802
        self.set = {
            attribute.type: attribute.value for attribute in parameters.attributes[: parameters.count]
        }
        reasons = self.set[pcs.REASONS].reasons
        assert reasons.indices[: reasons.count] == [40, 41]

    def _GetData(self, parameters) -> None:  # noqa: N802
        data = parameters.data[0]
        assert (data.size, data.most_pcs) == (80, pcs.MOST_PCS)
        self.reads += 1
        if self.reads < 3:
            data.total_samples, data.pcs, data.remaining = 10, 2, 3 - self.reads
            for place, pc in enumerate(data.pc[:2]):
                data.pc[place].function, data.pc[place].reason_count = b"gemm", 2
                for number, reason in enumerate((40, 41)):
                    pc.reasons[number] = pcs.StallReason(reason, 1 + number)


def test_samples_are_read_until_nothing_comes_and_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupti()
    monkeypatch.setattr(pcs.c, "CDLL", lambda path: fake)
    monkeypatch.setattr(pcs, "PAUSE_S", 0)
    sampler = pcs.Sampler("libcupti.so.13", 7, 12, pcs.CONTINUOUS)
    assert (fake.set[pcs.PERIOD].number, fake.set[pcs.MODE].number, fake.set[pcs.CONTROL].number) == (
        12,
        1,
        1,
    )
    sampler.start()
    sampler.stop()
    result = pcs.counted(sampler.read(), sampler.names)
    sampler.disable()
    assert result["by_reason"] == {NAMES[1]: 8, NAMES[0]: 4}
    assert (result["samples"], result["lost"], result["by_kernel"]) == (20, 0, {"gemm": 12})
    order = ["Enable", "GetNumStallReasons", "GetStallReasons", "SetConfigurationAttribute", "Start", "Stop"]
    assert fake.calls[:6] == order and fake.calls[-1] == "Disable"
    assert fake.reads == 2 + pcs.QUIET


@pytest.mark.parametrize("call", ["Enable", "SetConfigurationAttribute"])
def test_a_refused_call_is_named(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcs.c, "CDLL", lambda path: FakeCupti(call))
    with pytest.raises(pcs.RefusedError) as refused:
        pcs.Sampler("libcupti.so.13", 7, 12, pcs.CONTINUOUS)
    assert refused.value.args == (f"cuptiPCSampling{call}", 35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def test_a_library_that_is_loaded_is_found() -> None:
    assert (pcs.loaded("libc.so") or pcs.loaded("libc-") or pcs.loaded("ld-")) is not None
    assert pcs.loaded("libnothing-like-it") is None
