"""Figures of a comparison: their basis, the peaks behind shares, and noise; budgets that use them."""

from __future__ import annotations

from msgspec.structs import replace

from fathom.analysis.compare import budgets_in, check, compare
from fathom.analysis.compare.causes import FEW
from fathom.analysis.compare.run import CLEAN, MEAN, Run, RunEntry
from fathom.analysis.results import Utilisation
from tests.analysis.test_compare import GPT, changed, example, pair

TF32, FP32 = 400e12, 50e12
FLOPS = 2e12


def used(peak: float, dtype: str, step_ms: float = 10.0, measured: bool = True) -> Utilisation:
    share = FLOPS / peak / (step_ms / 1e3)
    mfu, published = (share, 0.8 * share) if measured else (None, share)
    return Utilisation(mfu, mfu, published, FLOPS, False, "", published, step_ms, [f"matmul.{dtype}"])


def side(utilisation: Utilisation | None, mean_ms: float = 10.0, **fields) -> Run:
    """A run whose median step takes 10 ms."""
    entries = {
        basis: [RunEntry("compute", "mm", ns, [ns] * 10)]
        for basis, ms in ((CLEAN, 10.0), (MEAN, mean_ms))
        for ns in [round(ms * 1e6)]
    }
    long = round((mean_ms - 10.0) * 20)
    clean = [10.0] * 19 + [10.0 + long]
    return changed(
        example(GPT),
        entries=entries,
        clean_ms=clean,
        utilisation=utilisation,
        uneven=mean_ms > 10.2,
        **fields,
    )


def figure(result, name: str):
    return next((row for row in result.figures if row.name == name), None)


def budget(result, **limits: str):
    return check(budgets_in({"budgets": limits}, "x"), result).budgets[0]


def test_utilisation_is_that_of_the_mean_step_like_other_rates():
    """A long step in twenty halves both samples/s and MFU, although the median step is the same."""
    result = compare([side(used(TF32, "tf32"))], [side(used(TF32, "tf32"), mean_ms=20.0)])
    mfu = figure(result, "MFU")
    assert result.basis == MEAN
    assert (round(mfu.baseline, 6), round(mfu.candidate, 6)) == (0.5, 0.25)
    both = compare([side(used(TF32, "tf32"))], [side(used(TF32, "tf32"), mean_ms=10.1)])
    assert both.basis == CLEAN and round(figure(both, "MFU").candidate, 6) == round(0.5 / 1.01, 6)


def test_shares_of_different_peaks_are_not_compared():
    result = compare([side(used(FP32, "fp32", 80.0))], [side(used(TF32, "tf32"))])
    mfu = figure(result, "MFU")
    assert (
        not mfu.moved and "50 TFLOP/s (fp32) in the baseline" in mfu.why and "400 TFLOP/s (tf32)" in mfu.why
    )
    assert any(absence.what.startswith("MFU") and absence.why == mfu.why for absence in result.abstained)
    relative = budget(result, mfu="-5 %")
    assert relative.status == "unknown" and "different peaks" in relative.why
    assert budget(result, mfu=">= 40 %").status == "kept"  # the candidate's own share is known


def test_recordings_of_other_precision_have_other_peaks():
    result = compare(*([run] for run in pair("two.tf32_and_optimizer")))
    assert "fp32" in figure(result, "MFU").why and "tf32" in figure(result, "MFU").why
    same = compare(*([run] for run in pair("two.layout_and_precision")[:1] * 2))
    assert figure(same, "MFU") is None or not figure(same, "MFU").why


def test_a_ceiling_measured_a_little_higher_is_noise():
    """The same rate of FLOPs is a share 4 % lower of a ceiling that was measured 4 % higher."""
    result = compare([side(used(TF32, "tf32"))], [side(used(1.04 * TF32, "tf32"))])
    mfu = figure(result, "MFU")
    assert not mfu.moved and not mfu.why and mfu.band > 0.04 * mfu.baseline


def test_a_lower_bound_may_only_seem_smaller():
    """The candidate's products of unknown FLOPs may do the rest."""
    known, partial = used(TF32, "tf32"), replace(used(2 * TF32, "tf32"), partial=True, flops=FLOPS / 2)
    partial = replace(partial, mfu=0.25, hfu=0.25)  # half of the FLOPs at the same peak
    fewer = compare([side(known)], [side(partial)])
    assert not figure(fewer, "MFU").moved and figure(fewer, "MFU").at_least == ["candidate"]
    assert budget(fewer, mfu=">= 40 %").status == "unknown" and budget(fewer, mfu=">= 20 %").status == "kept"
    more = compare([side(partial)], [side(known)])
    assert not figure(more, "MFU").moved
    assert figure(compare([side(replace(partial, partial=False))], [side(known)]), "MFU").moved
    assert figure(compare([side(replace(known, mfu=0.2, flops=0.4 * FLOPS))], [side(partial)]), "MFU").moved


def test_a_budget_uses_the_datasheets_peak_where_no_ceiling_was_measured():
    runs = [side(used(TF32, "tf32", measured=False)) for _ in range(2)]
    row = budget(compare(runs[:1], runs[1:]), mfu=">= 40 %")
    assert row.status == "kept" and row.candidate == 0.5 and "datasheet" in row.why
    bare = compare([side(None)], [side(None)])
    assert figure(bare, "MFU") is None and budget(bare, mfu=">= 40 %").status == "unknown"


def test_the_clock_is_either_a_figure_or_not_compared():
    for samples in (1, FEW - 1, FEW, 4 * FEW):
        runs = [side(None, clocks_mhz=[mhz] * samples) for mhz in (1980.0, 1500.0)]
        result = compare(runs[:1], runs[1:])
        absent = "clocks" in {absence.what for absence in result.abstained}
        assert absent is (figure(result, "clock of the GPU") is None) is (samples < FEW)


def test_a_processor_has_no_clock_or_counters_to_miss():
    runs = [side(None, device="cpu", clocks_mhz=[], counters=[]) for _ in range(2)]
    assert not {"clocks", "counters"} & {a.what for a in compare(runs[:1], runs[1:]).abstained}


def test_a_budget_in_far_larger_noise_is_uncertain():
    """Steps that scatter by much more than the limit decide neither an absolute nor a relative budget."""
    noisy = [changed(side(None), clean_ms=[ms * k for k in (0.01, 40.0) * 10]) for ms in (1.0, 4.0)]
    result = compare(noisy[:1], noisy[1:])
    step = budget(result, step="<= 12 ms")
    assert step.band > 5 * step.candidate and step.status == "unknown" and "noise" in step.why
    assert budget(result, step="+2 %").status == "unknown"
    assert not check(budgets_in({"budgets": {"step": "<= 12 ms"}}, "x"), result).passed
    clear = f"<= {round(3 * step.band)} ms"
    assert budget(result, step=clear).status == "kept"
    quiet = compare([side(None)], [side(None)])
    assert budget(quiet, step="<= 10.01 ms").status == budget(quiet, step="<= 9.99 ms").status == "kept"


def test_an_estimated_energy_has_more_noise():
    """An energy that is known to 10 % does not differ from 10 % less; an energy that was counted does."""

    def spent(joules: float, known: float) -> Run:
        ends = {"per_step_low_j": joules * (1 - known), "per_step_high_j": joules * (1 + known)}
        run = side(None)
        energy = replace(
            run.examination.energy, per_step_j=joules, **(ends if known else dict.fromkeys(ends))
        )
        return replace(run, examination=replace(run.examination, energy=energy))

    for known, moved in ((0.0, True), (0.1, False)):
        result = compare([spent(5.0, 0.0)], [spent(5.5, known)])
        assert figure(result, "energy").moved is moved


def test_waits_for_batches_vary_with_the_load_of_the_host():
    """The wait of a host that others use half of the time may double by itself."""

    def waiting(ms: float, others: float) -> Run:
        run = side(None, others=others)
        return replace(
            run, examination=replace(run.examination, input=replace(run.examination.input, wait_ms=ms))
        )

    for others, moved in ((0.0, True), (0.5, False)):
        runs = [waiting(1.0, others), waiting(2.2, others)]
        assert figure(compare(runs[:1], runs[1:]), "input wait").moved is moved
