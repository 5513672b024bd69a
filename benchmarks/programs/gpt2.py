"""Train transformers' GPT-2 from random weights, with `--attention` eager or sdpa."""

import torch
from common import Stopwatch, arguments
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    parser = arguments(__doc__, steps=400)
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")
    options = parser.parse_args()
    torch.manual_seed(0)
    width, layers, heads, batch, length = (64, 2, 4, 2, 64) if options.small else (768, 12, 12, 8, 1024)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, attn_implementation=options.attention)
    dtype = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
    model = GPT2LMHeadModel(config).to(options.device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not options.small)
    watch = Stopwatch()
    for _ in range(options.steps):
        tokens = torch.randint(config.vocab_size, (batch, length), device=options.device)
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    print(f"{options.steps} steps with {options.attention} attention")
    watch.save(options.times)


if __name__ == "__main__":
    main()
