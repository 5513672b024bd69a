"""Answer prompts with transformers' generate: in single precision, the likeliest token each time."""

import argparse
import os

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from transformers import LlamaConfig, LlamaForCausalLM

# width, layers, vocabulary, batch and prompt
SIZES = {"cpu": (64, 2, 512, 2, 16), "cuda": (1024, 8, 32_000, 8, 128)}
NEW = 6  # tokens of an answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    width, layers, vocabulary, batch, length = SIZES[options.device]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.device(options.device):
        model = LlamaForCausalLM(config).eval()
    for _ in range(options.steps):
        prompt = torch.randint(1, vocabulary, (batch, length), device=options.device)
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
        )


if __name__ == "__main__":
    main()
