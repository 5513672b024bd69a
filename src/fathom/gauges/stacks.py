"""Small stacks of layers of several kinds, whose tensors are so small that calls take all of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

LAYERS, WIDTH, HEADS, TOKENS, BATCH, CLASSES = 2, 16, 2, 4, 1, 16
ELEMENTS, SIDE, CHANNELS, TABLES = 4, 8, 4, 4


class Layers(NamedTuple):
    """The modules of a stack, its input, and the function of both that returns the logits by row."""

    parts: Any
    x: Any
    forward: Callable[[Any, Any], Any]


def transformer(torch: Any, layers: int = LAYERS) -> Layers:
    """Return layers that call fused attention themselves."""
    nn = torch.nn
    parts = {"embedding": nn.Embedding(CLASSES, WIDTH), "head": nn.Linear(WIDTH, CLASSES)}
    for layer in range(layers):
        parts[f"norm {layer}"] = nn.LayerNorm(WIDTH)
        parts[f"query {layer}"] = nn.Linear(WIDTH, 3 * WIDTH)
        parts[f"out {layer}"] = nn.Linear(WIDTH, WIDTH)
        wide = nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        parts[f"network {layer}"] = nn.Sequential(nn.LayerNorm(WIDTH), *wide)

    def forward(parts: Any, tokens: Any) -> Any:
        x = parts["embedding"](tokens)
        for layer in range(layers):
            heads = parts[f"query {layer}"](parts[f"norm {layer}"](x))
            query, key, value = heads.view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + parts[f"out {layer}"](y.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
            x = x + parts[f"network {layer}"](x)
        return parts["head"](x).flatten(0, 1)

    return Layers(nn.ModuleDict(parts), torch.randint(CLASSES, (BATCH, TOKENS)), forward)


def encoder(torch: Any) -> Layers:
    """Return PyTorch's own transformer layers."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True, activation="gelu")
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    parts = {"layers": layers, "head": nn.Linear(WIDTH, CLASSES)}
    x = torch.randn(BATCH, TOKENS, WIDTH)
    return Layers(nn.ModuleDict(parts), x, lambda parts, x: parts["head"](parts["layers"](x).mean(1)))


def dense(torch: Any) -> Layers:
    """Return linear layers with activation and dropout."""
    nn = torch.nn
    layers = [p for _ in range(LAYERS) for p in (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1))]
    return _sequence(nn, torch.randn(2, WIDTH), *layers, nn.Linear(WIDTH, CLASSES))


def tables(torch: Any) -> Layers:
    """Return tables of embeddings, and a network on their rows."""
    nn = torch.nn
    rows = nn.ModuleList(nn.Embedding(CLASSES, WIDTH) for _ in range(TABLES))
    parts = {"rows": rows, "head": nn.Sequential(nn.Linear(TABLES * WIDTH, CLASSES), nn.Sigmoid())}

    def forward(parts: Any, x: Any) -> Any:
        rows = [table(x[:, place]) for place, table in enumerate(parts["rows"])]
        return parts["head"](torch.cat(rows, 1))

    return Layers(nn.ModuleDict(parts), torch.randint(CLASSES, (2, TABLES)), forward)


def convolutions(torch: Any) -> Layers:
    """Return convolutions with batch norm: plain, strided, pointwise and transposed."""
    nn = torch.nn
    kinds = (
        nn.Conv2d(CHANNELS, CHANNELS, 3, 1, 1, bias=False),
        nn.Conv2d(CHANNELS, CHANNELS, 3, 2, 1),
        nn.Conv2d(CHANNELS, CHANNELS, 1),
        nn.ConvTranspose2d(CHANNELS, CHANNELS, 4, 2, 1),
    )
    layers = [part for kind in kinds for part in (kind, nn.BatchNorm2d(CHANNELS), nn.ReLU())]
    ends = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES)
    return _sequence(nn, torch.randn(2, CHANNELS, SIDE, SIDE), *layers, *ends)


def cells(torch: Any) -> Layers:
    """Return recurrent cells that are called for each element."""
    nn = torch.nn
    parts = {"gru": nn.GRUCell(WIDTH, WIDTH), "lstm": nn.LSTMCell(WIDTH, WIDTH)}
    parts["head"] = nn.Linear(WIDTH, CLASSES)

    def forward(parts: Any, x: Any) -> Any:
        state = x.new_zeros(x.shape[0], WIDTH)
        both = state, state
        for place in range(ELEMENTS):
            state = parts["gru"](x[:, place], state)
            both = parts["lstm"](state, both)
        return parts["head"](both[0])

    return Layers(nn.ModuleDict(parts), torch.randn(2, ELEMENTS, WIDTH), forward)


def recurrent(torch: Any) -> Layers:
    """Return recurrent layers that are called once for all elements."""
    nn = torch.nn
    parts = {kind: getattr(nn, kind)(WIDTH, WIDTH, batch_first=True) for kind in ("GRU", "LSTM")}
    parts["head"] = nn.Linear(WIDTH, CLASSES)

    def forward(parts: Any, x: Any) -> Any:
        return parts["head"](parts["LSTM"](parts["GRU"](x)[0])[0]).flatten(0, 1)

    return Layers(nn.ModuleDict(parts), torch.randn(2, ELEMENTS, WIDTH), forward)


def _sequence(nn: Any, x: Any, *layers: Any) -> Layers:
    return Layers(nn.Sequential(*layers), x, lambda parts, x: parts(x))


class Kind(NamedTuple):
    """How to build the layers, and the optimizer of their parameters."""

    layers: Callable[..., Layers]
    optimizer: str = "AdamW"
    momentum: float | None = None


KINDS = (
    Kind(transformer),
    Kind(encoder, "Adam"),
    Kind(dense, "SGD"),
    Kind(tables, "Adagrad"),
    Kind(convolutions, "SGD", 0.9),
    Kind(cells, "RMSprop"),
    Kind(recurrent, "Adam"),
)
