"""The work of a model: parameters, FLOPs and bytes by stated conventions, from its configuration."""

from fathom.planner.workload.conventions import (
    CONVENTIONS,
    Convention,
    convention,
    flops_per_token,
    translate,
)
from fathom.planner.workload.model import (
    Attention,
    Block,
    Dense,
    Experts,
    Latent,
    Matmul,
    Model,
    Recurrent,
    Vision,
    matmuls,
)
from fathom.planner.workload.reading import known_models, model, nearest_divisor, parse_config
