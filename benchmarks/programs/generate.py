"""Answer prompts with transformers' generate, from random weights and a key-value cache."""

import os

import torch
from common import Stopwatch, arguments
from transformers import LlamaConfig, LlamaForCausalLM

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def model_of(small: bool) -> LlamaForCausalLM:
    width, layers, vocabulary = (64, 2, 512) if small else (1024, 16, 32000)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32 if small else width // 64,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    parser = arguments(__doc__, steps=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--new-tokens", type=int)
    options = parser.parse_args()
    torch.manual_seed(0)
    new = options.new_tokens or (8 if options.small else 64)
    dtype = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
    model = model_of(options.small).to(options.device, dtype)
    watch = Stopwatch()
    for number in range(options.steps):
        length = (32, 64, 128)[number % 3]
        prompt = torch.randint(1, model.config.vocab_size, (options.batch, length), device=options.device)
        mask = torch.ones_like(prompt)
        answer = model.generate(
            prompt, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=True
        )
        watch.lap()
    print(f"{options.steps} prompts, last answer {answer.shape[1] - length} tokens")
    watch.save(options.times)


if __name__ == "__main__":
    main()
