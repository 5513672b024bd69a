"""Launch files of a plan: torchrun with FSDP2, torchtitan, and Megatron-LM."""

from __future__ import annotations

from pathlib import Path

from fathom.errors import BadInputError, file_error
from fathom.planner.training.results import Plan

_PER_NODE = 8


def launch_files(plan: Plan) -> dict[str, str]:
    """Return the files that start this layout, by name."""
    return {
        "torchrun.sh": _torchrun(plan),
        "torchtitan.toml": _torchtitan(plan),
        "megatron.sh": _megatron(plan),
    }


def write_launch_files(plan: Plan, folder: Path) -> list[Path]:
    """Write the launch files into a folder; raises BadInputError if that is impossible."""
    if not plan.sequence:
        raise BadInputError(
            "Launch files need a model; start the recorded program with torchrun, or plan its config.json."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in launch_files(plan)]
        for path in paths:
            path.write_text(launch_files(plan)[path.name], encoding="utf-8")
    except OSError as error:
        raise BadInputError(file_error(folder, error, "written")) from None
    return paths


def _torchrun(plan: Plan) -> str:
    at = plan.layout
    if max(at.pp, at.cp, at.ep) > 1:
        return _comment(plan) + "# FSDP2 alone cannot run this layout: use torchtitan.toml or megatron.sh.\n"
    return f"""{_comment(plan)}# train.py builds the mesh and shards each layer:
#   mesh = init_device_mesh("cuda", {_mesh(plan)})
#   for layer in model.layers:
#       fully_shard(layer, mesh=mesh[{_shard_dims(plan)}], reshard_after_forward={at.sharding == "fsdp"})
#   fully_shard(model, mesh=mesh[{_shard_dims(plan)}], reshard_after_forward={at.sharding == "fsdp"})
{_run(plan)} train.py --seq-len {plan.sequence} --micro-batch {at.micro} --global-batch {plan.batch}
"""


def _mesh(plan: Plan) -> str:
    at = plan.layout
    inner = at.shard or at.dp
    sizes = {"replicate": at.dp // inner, "shard": inner, "tp": at.tp}
    used = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    return f"{tuple(used.values())}, mesh_dim_names={tuple(used)}"


def _shard_dims(plan: Plan) -> str:
    inner = plan.layout.shard or plan.layout.dp
    return '"replicate", "shard"' if plan.layout.dp > inner else '"shard"'


def _run(plan: Plan) -> str:
    nodes, each = max(1, plan.gpus // _PER_NODE), min(plan.gpus, _PER_NODE)
    more = " --rdzv-backend c10d --rdzv-endpoint $HEAD:29500" if nodes > 1 else ""
    return f"torchrun --nnodes {nodes} --nproc-per-node {each}{more}"


def _torchtitan(plan: Plan) -> str:
    at = plan.layout
    inner = at.shard or at.dp
    schedule = "Interleaved1F1B" if at.vpp > 1 else "1F1B"
    recompute = {"none": "none", "selective": "selective", "full": "full"}[at.recompute]
    float8 = '\n[model]\nconverters = ["float8"]\n' if plan.precision in ("fp8", "mxfp8") else ""
    return f"""{_comment(plan)}# {_run(plan)} -m torchtitan.train --job.config_file torchtitan.toml
[training]
seq_len = {plan.sequence}
local_batch_size = {plan.batch // at.dp if at.pp > 1 else at.micro}
global_batch_size = {plan.batch}
{float8}
[parallelism]
data_parallel_replicate_degree = {at.dp // inner}
data_parallel_shard_degree = {inner}
fsdp_reshard_after_forward = "{"always" if at.sharding == "fsdp" and at.pp == 1 else "never"}"
tensor_parallel_degree = {at.tp}
context_parallel_degree = {at.cp}
pipeline_parallel_degree = {at.pp}
pipeline_parallel_schedule = "{schedule}"
pipeline_parallel_microbatch_size = {at.micro}
expert_parallel_degree = {at.ep}

[activation_checkpoint]
mode = "{recompute}"

[compile]
enable = true
"""


def _megatron(plan: Plan) -> str:
    at = plan.layout
    flags = [
        f"--seq-length {plan.sequence} --micro-batch-size {at.micro} --global-batch-size {plan.batch}",
        f"--tensor-model-parallel-size {at.tp} --pipeline-model-parallel-size {at.pp}",
        f"--context-parallel-size {at.cp} --expert-model-parallel-size {at.ep} --bf16",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    ]
    optional = {
        "--sequence-parallel": at.tp > 1,
        f"--num-virtual-stages-per-pipeline-rank {at.vpp}": at.vpp > 1,
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1": at.recompute
        == "full",
        "--recompute-granularity selective": at.recompute == "selective",
        "--fp8-format hybrid": plan.precision in ("fp8", "mxfp8"),
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params": at.sharding == "fsdp",
    }
    flags += [flag for flag, wanted in optional.items() if wanted]
    return f"{_comment(plan)}{_run(plan)} pretrain_gpt.py \\\n  " + " \\\n  ".join(flags) + "\n"


def _comment(plan: Plan) -> str:
    step = plan.step
    return (
        f"# {plan.model} on {plan.gpus} {plan.system}, {plan.precision}: planned step {step.value:.4g} s "
        f"({step.low:.4g} to {step.high:.4g}). Check the recording with `fathom plan check`.\n"
    )
