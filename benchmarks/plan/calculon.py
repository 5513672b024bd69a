"""Calculon on published runs: from a checkout of calculon-ai/calculon, with its own system files."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

from benchmarks.plan.published import Run
from fathom.planner.training.layout import FULL, SELECTIVE, ZERO1
from fathom.planner.workload import Attention, Dense

SYSTEMS = {"a100-80gb": "a100_80g.json", "h100": "h100_80g_nvl8.json"}
REFUSED = "Calculon refuses it: "
_RECOMPUTE = {FULL: "full", SELECTIVE: "attn_only"}


class NotExpressibleError(Exception):
    """Calculon has no way to describe a run, or refuses it."""


class Planner:
    """Calculon's model of training, imported from a checkout."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        self._calculon = importlib.import_module("calculon")
        self._systems = folder / "systems"

    def seconds(self, run: Run) -> float:
        """Return its step time. Raises NotExpressibleError."""
        application, execution, file = described(run)
        llm = self._calculon.Llm
        system = self._calculon.System(json.loads((self._systems / file).read_text(encoding="utf-8")))
        model = llm(llm.Application(application), logging.getLogger("calculon"))
        try:
            model.compile(system, llm.Execution.from_json(execution))
            model.run(system)
        except llm.Error as error:
            raise NotExpressibleError(f"{REFUSED}{error}") from error
        return float(model.get_stats_json(include_layers=False)["total_time"])


def described(run: Run) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return Calculon's application, execution and system file of a run. Raises NotExpressibleError."""
    if reason := _why_not(run):
        raise NotExpressibleError(reason)
    at = {name: int(getattr(run.layout, name)[0]) for name in ("dp", "tp", "pp", "vpp", "micro", "recompute")}
    block, split = run.model.blocks[0], bool(run.layout.sp[0])
    sharded = int(run.layout.sharding[0]) == ZERO1 and at["dp"] > 1
    application = {
        "hidden": run.model.hidden,
        "feedforward": block.mlp.ffn,
        "seq_size": run.job.seq,
        "attn_heads": block.mixer.heads,
        "attn_size": block.mixer.head_dim,
        "num_blocks": block.count,
    }
    execution = {
        "num_procs": run.job.gpus,
        "tensor_par": at["tp"],
        "pipeline_par": at["pp"],
        "data_par": at["dp"],
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": run.job.batch,
        "microbatch_size": at["micro"],
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": _RECOMPUTE.get(at["recompute"], "none"),
        "pipeline_interleaving": at["vpp"],
        "optimizer_sharding": sharded,
        "tensor_par_comm_type": "rs_ag" if split else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": split and at["recompute"] != FULL,  # Megatron-LM gathers again for the weights
        "data_par_overlap": sharded,  # as Megatron-LM has it by default since its distributed optimizer
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    return application, execution, SYSTEMS[run.system.name]


def _why_not(run: Run) -> str | None:
    """Return why Calculon cannot describe a run."""
    block = run.model.blocks[0]
    mixer, mlp = block.mixer, block.mlp
    reasons = {
        f"no system file for {run.system.name}": run.system.name not in SYSTEMS,
        "no experts": run.model.is_moe,
        "no context parallelism": int(run.layout.cp[0]) > 1,
        "no sharding of parameters": int(run.layout.sharding[0]) > ZERO1,
        "no mixture of fp8 and wider types": run.job.precision != "bf16",
        "no grouped attention": not isinstance(mixer, Attention) or mixer.kv_heads != mixer.heads,
        "no gated MLP": isinstance(mlp, Dense) and mlp.gated,
        "layers of one kind only": len(run.model.blocks) > 1,
    }
    return next((words for words, true in reasons.items() if true), None)
