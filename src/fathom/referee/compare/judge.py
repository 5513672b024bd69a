"""Compare a candidate's results with the baseline's and with a reference in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from fathom.referee.compare.decode import Leaf, Saved
from fathom.referee.compare.errors import FAR, Errors, Nearness, diagnose, finer, finite, nearness, truncated
from fathom.referee.compare.tolerance import Tolerance, tolerance
from fathom.referee.gate import Turn
from fathom.referee.verdict import Agreement, Refusal

AMPLIFIED = 2.0  # multiple of the baseline's error that is allowed, as some computations amplify rounding
PAGE, PAGES = 4096, 1024  # bytes per hashed page, and pages hashed of a large result
LOOK = 4096  # elements compared first
GROSS, FLIPPED = 30.0, 1e-3  # multiple of the tolerance, and share of integers, beyond which errors are gross


@dataclass
class Judge:
    """Compares results and collects the agreement. `claim`: the candidate's declared precision, else its
    dtype. `reduction`: terms per element; by default the longest extent of the inputs, or the elements
    of the largest input per element of the result.
    """

    claim: str | None = None
    reduction: int | None = None
    longest: int = 1  # longest extent of the inputs
    largest: int = 1  # elements of the largest input
    exact_reference: bool = True  # False if the reference is the baseline's own result
    turn: Turn = field(default_factory=Turn)
    agreement: dict[str, Agreement] = field(default_factory=dict)
    calls: int = 0  # compared
    gross: bool = False  # only gross errors count: of many calls, some are ill-conditioned or have ties
    _earlier: dict[str, dict[str, str]] = field(default_factory=dict)

    def judge(self, candidate: Saved, baseline: Saved, reference: Saved) -> list[Refusal]:
        """Return reasons to refuse the candidate's result. All three results are for the same inputs."""
        self.calls += 1
        with self.turn.computing():
            return self._judged(candidate, baseline, reference)

    def same(self, result: Saved) -> bool:
        """Count a result with the baseline's bytes, and return True; False for NaN or infinities."""
        with self.turn.computing():
            if not all(finite(leaf) for leaf in result.leaves if leaf.numeric):
                return False
            self.calls += 1
            for leaf in result.leaves:
                self._stale(leaf, leaf)
                self._counted(leaf)
        return True

    def _judged(self, candidate: Saved, baseline: Saved, reference: Saved) -> list[Refusal]:
        if candidate.inputs != reference.inputs:
            return [Refusal("global-state", "the same seed gives different inputs in its process")]
        shared = [pair for pair in candidate.aliases if pair not in baseline.aliases]
        mutated = [place for place in candidate.mutated if place not in baseline.mutated]
        reasons = [Refusal("aliases-input", pair) for pair in shared]
        reasons += [Refusal("mutates-input", f"{place} changed during the call") for place in mutated]
        mine = [leaf for leaf in candidate.leaves if leaf.place not in mutated]
        if wrong := list(_contract(mine, baseline.leaves)):
            return reasons + wrong
        for own, base, ref in zip(mine, baseline.leaves, _matching(reference, baseline), strict=True):
            reasons += self._leaf(own, base, ref)
        return reasons

    def _leaf(self, own: Leaf, base: Leaf, ref: Leaf) -> list[Refusal]:
        if not own.numeric:
            wrong = Refusal("wrong-result", f"{own.place} differs from the baseline's")
            return [] if own.same(base) else [wrong]
        stale = self._stale(own, base)
        if own.part(slice(0, 0)).dtype.kind in "biu":
            return self._exact(own, own.numbers(), base.numbers(), stale)
        near = nearness(own, base, ref)
        if not near.gaps:
            return [stale or Refusal("not-finite", own.place)]
        return self._near(own, base, ref, near, stale)

    def _exact(self, own: Leaf, x: np.ndarray, b: np.ndarray, stale: Refusal | None) -> list[Refusal]:
        self._counted(own)
        wrong = int(np.count_nonzero(x != b))
        text = f"{own.place}: {wrong} of {x.size} elements differ"
        few = wrong <= (FLIPPED * x.size if self.gross else 0)
        return [] if few else [stale or Refusal("wrong-result", text)]

    def _near(self, own: Leaf, base: Leaf, ref: Leaf, near: Nearness, stale: Refusal | None) -> list[Refusal]:
        claim, seen = self.claim or own.dtype, near.mine
        length = self.reduction or max(self.longest, self.largest // max(own.elements, 1), 1)
        allowed = self._allowed(claim, length, own.elements, near.theirs)
        _widen(self._counted(own), seen, allowed, near.theirs, length)
        if seen.within(allowed):
            narrow = _narrower(own, base, ref, claim)
            detail = f"{own.place}: every element is a number of {narrow}"
            return [Refusal("lower-precision", detail)] if narrow else []
        code, detail = diagnose(own.numbers(), ref.numbers(), claim, length)
        if own.place.startswith("gradient") or own.place.endswith(".grad"):
            code = "wrong-gradient" if code != "lower-precision" else code
        return [stale or Refusal(code, f"{own.place}: {detail}")]

    def _allowed(self, dtype: str, length: int, elements: int, theirs: Errors) -> Tolerance:
        allowed = tolerance(dtype, length, elements) or Tolerance(0.0, 0.0)
        if not self.exact_reference or dtype in ("float64", "complex128"):
            allowed = Tolerance(2 * allowed.norm, 2 * allowed.worst)  # because both sides are rounded
        allowed = allowed.at_least(AMPLIFIED * theirs.norm, AMPLIFIED * theirs.worst)
        if not self.gross:
            return allowed
        return allowed.at_least(min(GROSS * allowed.norm, FAR), min(GROSS * allowed.worst, FAR))

    def _stale(self, own: Leaf, base: Leaf) -> Refusal | None:
        """Return a refusal if the candidate returned bytes of an earlier call where the baseline's differ."""
        earlier = self._earlier.setdefault(own.place, {})
        data, theirs = _fingerprint(own), _fingerprint(base)
        if earlier.setdefault(data, theirs) == theirs or _constant(own):
            return None
        return Refusal("cached-result", f"{own.place} is the result of other inputs")

    def _counted(self, own: Leaf) -> Agreement:
        """Count a call for this part of the result, and return the part's agreement."""
        noted = self.agreement.setdefault(own.place, Agreement(own.place, own.dtype, 0))
        noted.calls += 1
        return noted


def _widen(noted: Agreement, seen: Errors, allowed: Tolerance, theirs: Errors, length: int) -> None:
    """Widen the agreement to include the errors of another call."""
    if noted.relative_norm is None or not seen.norm <= noted.relative_norm:
        noted.relative_norm, noted.allowed_norm = seen.norm, allowed.norm
    if noted.worst is None or not seen.worst <= noted.worst:
        noted.worst, noted.allowed_worst = seen.worst, allowed.worst
    noted.baseline_norm = max(noted.baseline_norm or 0.0, theirs.norm)
    noted.reduction = length


def _narrower(own: Leaf, base: Leaf, ref: Leaf, claim: str) -> str | None:
    """Return the narrower format that holds all of the candidate's numbers but not the baseline's."""
    if claim != "float32" or finer(own.part(slice(0, min(LOOK, own.elements)))):
        return None
    x, b, r = own.numbers(), base.numbers(), ref.numbers()
    return truncated(x, r, claim) if truncated(b, r, claim) is None else None


def _fingerprint(leaf: Leaf) -> str:
    """Return a hash of the bytes. Large results are sampled, because the hash only chooses the reason."""
    hasher, size = blake2b(digest_size=16), len(leaf.data)
    step = PAGE if size <= PAGES * PAGE else size // PAGES
    for at in range(0, size, step):
        hasher.update(leaf.data[at : at + PAGE])
    return hasher.hexdigest()


def _constant(leaf: Leaf) -> bool:
    data = np.frombuffer(leaf.data, np.uint8)
    return bool((data == data[:1]).all())


def _contract(own: list[Leaf], baseline: list[Leaf]) -> Iterator[Refusal]:
    for leaf in own:
        if leaf.form["kind"] == "object":
            code = "lazy-result" if leaf.form.get("deferred") else "contract"
            yield Refusal(code, f"{leaf.place} is a {leaf.form['type']}")
            return
    places = [leaf.place for leaf in own], [leaf.place for leaf in baseline]
    if places[0] != places[1]:
        odd = sorted(set(places[0]) ^ set(places[1])) or places[0]
        yield Refusal("contract", f"the structures differ: {', '.join(odd[:3])}")
        return
    for mine, theirs in zip(own, baseline, strict=True):
        for what in ("kind", "dtype", "shape", "stride", "device"):
            if mine.form.get(what) != theirs.form.get(what) and not _same_layout(what, mine, theirs):
                text = f"{mine.place}: {what} {mine.form.get(what)} instead of {theirs.form.get(what)}"
                yield Refusal("contract", text)
                break


def _same_layout(what: str, mine: Leaf, theirs: Leaf) -> bool:
    """Return whether strides are equal, except those of dimensions with one element, which mean nothing."""
    if what != "stride" or mine.form.get("shape") != theirs.form.get("shape"):
        return False
    steps = zip(mine.form["shape"], mine.form["stride"], theirs.form["stride"], strict=True)
    return 0 in mine.form["shape"] or all(a == b for extent, a, b in steps if extent > 1)


def _matching(reference: Saved, baseline: Saved) -> list[Leaf]:
    """Return the reference's leaves in the baseline's order; the baseline's leaf if the shapes differ."""
    known = {(leaf.place, str(leaf.form.get("shape"))): leaf for leaf in reference.leaves}
    return [known.get((base.place, str(base.form.get("shape"))), base) for base in baseline.leaves]
