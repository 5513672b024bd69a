"""The results of the program's first steps, by which two settings are compared: losses, weights, outputs.

Tensors are kept as they are on their device and read when the witness ends, so that nothing waits for the
device in between; only a watched loss (`until`) is read at once.
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import json, open, os, time
from fathom.probe.faults import guarded, identity
from fathom.probe.hooks.patches import Patches, before
from fathom.probe.session import Session

PART = "recording results"
VALUES = 4096  # of all weights together, evenly spaced
OUTPUTS = 64  # values of an output
RECENT = 5  # losses whose mean has to reach the limit


class Witness:
    """Collects `steps` losses, the weights after as many steps of an optimizer, and outputs of modules."""

    def __init__(self, session: Session, steps: int, until: float | None = None) -> None:
        self._session, self._steps, self._until = session, steps, until
        self._losses: list[Any] = []
        self._outputs: list[Any] = []
        self._stepped: dict[int, int] = {}
        self._weights: dict[str, list[float]] = {}
        self._recent: list[float] = []
        self._reached_ns: int | None = None
        self._seen = 0
        self._written = False
        self._is_timed = "rounding" not in session.plan.acts  # else the run ends with its results

    @guarded(PART)
    def loss(self, tensor: Any, *_: Any, **__: Any) -> None:
        """Keep the loss whose backward pass begins."""
        if tensor.numel() != 1:
            return
        self._seen += 1
        if len(self._losses) < self._steps:
            self._losses.append(tensor.detach().clone())
        if self._until is not None and self._reached_ns is None:
            self._recent = [*self._recent[1 - RECENT :], float(tensor.detach())]
            if len(self._recent) == RECENT and sum(self._recent) / RECENT <= self._until:
                self._reached_ns = time.time_ns()
                self._session.stop()

    @guarded(PART)
    def stepped(self, optimizer: Any, *_: Any) -> None:
        """Keep the weights of an optimizer after its step number `steps`."""
        count = self._stepped[identity(optimizer)] = self._stepped.get(identity(optimizer), 0) + 1
        if count == self._steps:
            number = list(self._stepped).index(identity(optimizer)) + 1
            weights = [w for group in optimizer.param_groups for w in group["params"]]
            self._weights[f"weights of optimizer {number}"] = self._sampled(weights)
            if not self._is_timed and self._has_all():
                self._session.stop()

    def _has_all(self) -> bool:
        return len(self._losses) >= self._steps and all(n >= self._steps for n in self._stepped.values())

    def _sampled(self, weights: list[Any]) -> list[float]:
        stride = max(1, sum(weight.numel() for weight in weights) // VALUES)
        with self._session.torch.no_grad():
            return [x for w in weights for x in w.detach().flatten()[::stride].double().cpu().tolist()]

    @guarded(PART)
    def output(self, result: Any) -> None:
        """Keep the first tensor of a module's result."""
        if len(self._outputs) < self._steps and (tensor := first_tensor(result)) is not None:
            flat = tensor.detach().flatten()
            self._outputs.append(flat[:: max(1, flat.numel() // OUTPUTS)][:OUTPUTS].clone())

    @guarded(PART)
    def write(self) -> None:
        """Write `witness-PID.json`, once."""
        if self._written or not (self._losses or self._outputs or self._weights):
            return
        self._written = True
        outputs = [x for output in self._outputs for x in output.double().cpu().tolist()]
        arrays = {"loss": [float(loss) for loss in self._losses], **self._weights}
        if not self._losses:
            arrays["outputs"] = outputs
        about = {"losses": self._seen, "reached_ns": self._reached_ns}
        path = os.path.join(self._session.raw, f"witness-{os.getpid()}.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"arrays": {k: v for k, v in arrays.items() if v}, **about}))


def first_tensor(result: Any) -> Any:
    """Return the first tensor of a module's result: itself, its logits, or an element; None without one."""
    for _ in range(4):
        if hasattr(result, "detach"):
            return result
        if isinstance(result, dict):
            result = result.get("logits", next(iter(result.values()), None))
        elif isinstance(result, (list, tuple)):
            result = result[0] if result else None
        else:
            result = getattr(result, "logits", None)
    return None


def install(session: Session, patches: Patches) -> list[Any]:
    """Watch losses, optimizers and outputs if the plan asks for it."""
    if not session.plan.witness:
        return []
    from torch.optim.optimizer import register_optimizer_step_post_hook

    witness = Witness(session, session.plan.witness, session.plan.until)
    patches.wrap(session.torch.Tensor, "backward", before(witness.loss))
    session.on_output.append(witness.output)
    session.on_end.append(witness.write)
    return [register_optimizer_step_post_hook(witness.stepped)]
