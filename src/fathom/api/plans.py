"""Plan training and serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fathom.api.sounding import open

if TYPE_CHECKING:
    from fathom.planner.serving import ServingPlan
    from fathom.planner.training import Plan


def plan(model: str, on: str | None = None, *, gpus: int, batch: int | None = None, **options: Any) -> Plan:
    """Return the plan of a training job: the best layout, its step time, memory, ledger and cost.

    `model` is the name of a public model, the path of a Hugging Face config.json, or a sounding, whose own
    kernels are then planned. `on` is a system or the path of a machine file; an H100 by default, or the
    recorded machine. `options` are those of `fathom plan train`: `seq`, `precision`, `stack`, `objective`,
    `tokens`, `price`, `tp`, `sample_time`, `checkpoint` … Raises BadInputError if no layout works.

        plan = fathom.plan("llama3-70b", "h100", gpus=256, batch=1024, tp=4)
        print(plan.step.value, plan.layout)
    """
    from fathom.planner.training import ask, is_sounding, plan_recorded, plan_training

    if is_sounding(model):
        return plan_recorded(open(model).on_more(gpus, on, batch=batch, **options))
    return plan_training(ask(model, on or "h100", gpus=gpus, batch=batch, **options))


def plan_serving(model: str, on: str = "h100", **options: Any) -> ServingPlan:
    """Return the plan of serving a model: latencies, rates and cost, and the fewest GPUs that hold limits.

    `options` are those of `fathom plan serve`, with underscores; `engine` is `engine_name`. Raises
    BadInputError with the nearest that works.

        plan = fathom.plan_serving("llama3-70b", "h100", weights="fp8", rate=8.0, tpot="50ms")
        print(plan.gpus, plan.figures["ttft"].value)
    """
    from fathom.planner.serving import ask_serving, plan_serving
    from fathom.planner.training import system_called

    return plan_serving(ask_serving(model, system_called(on), **options))
