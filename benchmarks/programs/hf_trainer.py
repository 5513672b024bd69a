"""Train a Llama with random weights through the Hugging Face Trainer."""

import os
import tempfile

import torch
from common import Stopwatch, arguments
from torch import Tensor
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Tokens(Dataset):
    """Sentences of a made-up language: counting in steps of one to nine."""

    def __init__(self, count: int, length: int, vocabulary: int) -> None:
        start = torch.randint(vocabulary, (count, 1))
        stride = torch.randint(1, 10, (count, 1))
        self.tokens = (start + stride * torch.arange(length)) % vocabulary

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Laps(TrainerCallback):
    def __init__(self) -> None:
        self.watch = Stopwatch()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.watch.lap()


def model_of(small: bool) -> LlamaForCausalLM:
    sizes = (
        {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        if small
        else {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
    )
    heads = 4 if small else 12
    config = LlamaConfig(
        **sizes, num_attention_heads=heads, num_key_value_heads=heads, tie_word_embeddings=True
    )
    return LlamaForCausalLM(config)


def main() -> None:
    options = arguments(__doc__, steps=300).parse_args()
    on_gpu = options.device.startswith("cuda")
    batch, length = (4, 64) if options.small else (16, 512)
    model, laps = model_of(options.small), Laps()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=batch,
            dataloader_num_workers=2,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            optim="adamw_torch_fused" if on_gpu else "adamw_torch",
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        data = Tokens(options.steps * batch, length, model.config.vocab_size)
        Trainer(model=model, args=settings, train_dataset=data, callbacks=[laps]).train()
    laps.watch.save(options.times)


if __name__ == "__main__":
    main()
