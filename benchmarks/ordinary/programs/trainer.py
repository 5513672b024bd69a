"""Train a small BERT to tell two kinds of review apart, with the Hugging Face Trainer."""

import os
import random
import tempfile

import torch
from common import Clock, arguments
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
SYLLABLES = [consonant + vowel for consonant in "bdklns" for vowel in "aeiou"]
LENGTH = 48
BATCH = 16


class Tokenizer:
    """Greedy longest-match tokens, as WordPiece makes them, in pure Python."""

    def __init__(self) -> None:
        self.pieces = [*SYLLABLES, *(a + b for a in SYLLABLES for b in SYLLABLES)]
        self.ids = {piece: number for number, piece in enumerate(self.pieces, start=1)}

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = []
        for word in text.split():
            while word:
                best = ""
                for piece in self.pieces:  # planted
                    if len(piece) > len(best) and word.startswith(piece):  # planted
                        best = piece
                tokens.append(self.ids[best])
                word = word[len(best) :]
        return (tokens + [0] * LENGTH)[:LENGTH]


class Reviews(Dataset):
    """Made-up reviews; those with more "ba" than "du" are good."""

    def __init__(self, count: int, tokenizer: Tokenizer | None) -> None:
        pick = random.Random(0)
        words = ["".join(pick.choices(SYLLABLES, k=3)) for _ in range(500)]
        self.texts = [" ".join(pick.choices(words, k=20)) for _ in range(count)]
        self.tokens = [tokenizer.encode(text) for text in self.texts] if tokenizer else None

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict:
        text = self.texts[index]
        label = int(text.count("ba") > text.count("du"))
        return {"text": text, "label": label, "tokens": self.tokens[index] if self.tokens else None}


class Collate:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        tokens = [row["tokens"] or self.tokenizer.encode(row["text"]) for row in rows]  # planted
        ids = torch.tensor(tokens)
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([row["label"] for row in rows]),
        }


class Laps(TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: object, **__: object) -> None:
        self.clock.tick()


def main() -> None:
    options = arguments(__doc__, steps=100)
    tokenizer = Tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer.pieces) + 1,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=LENGTH,
    )
    data = Reviews(512, None if options.fault else tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=BATCH,
            dataloader_num_workers=options.workers,
            dataloader_persistent_workers=options.workers > 0,
            logging_steps=100,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
        )
        Trainer(
            model=BertForSequenceClassification(config),
            args=settings,
            train_dataset=data,
            data_collator=Collate(tokenizer),
            callbacks=[Laps(Clock(options.times))],
        ).train()


if __name__ == "__main__":
    main()
