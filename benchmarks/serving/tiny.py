"""Build a small language model for trying servers: random weights and a tokenizer trained on our documents.

    python -m benchmarks.serving.tiny FOLDER [--hidden 256] [--layers 4]

It needs transformers and tokenizers, and no network. The text that it generates means nothing; the work does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

CORPUS = Path(__file__).parents[2] / "docs"
VOCABULARY, CONTEXT = 2048, 4096
SPECIAL = ("<pad>", "<s>", "</s>")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def build(folder: Path, hidden: int = 256, layers: int = 4) -> None:
    """Save a Qwen2 of random weights, with its tokenizer, in `folder`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = (
        -1
    )  # random weights end at random, so nothing ends a sequence early
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _tokenizer():
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    texts = [path.read_text(encoding="utf-8") for path in sorted(CORPUS.rglob("*.md"))]
    trained.train_from_iterator(texts, vocab_size=VOCABULARY, special_tokens=list(SPECIAL))
    names = dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **names)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def main() -> None:
    """Build the model that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    chosen = parser.parse_args()
    build(chosen.folder, chosen.hidden, chosen.layers)


if __name__ == "__main__":
    main()
