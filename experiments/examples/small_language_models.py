"""A GPT-2, a Llama and a Gemma 2 that have learnt what countries have, in seconds each.

    python -m latentcode.experiments.examples.small_language_models small

writes `small/gpt2`, `small/llama` and `small/gemma2`, as `save_pretrained` does; the prompts that
they can be asked, `small/factorial.jsonl`, every operation of every country in two wordings; and
`small/distances.csv`, how far operations are from each other. With `--copying` they learn real
facts instead, which are then in `small/factorial.jsonl` and can be asked of a GPT-2, too, and to
copy, in some minutes each: `small/texts.txt` has texts to read, a few words that come again and
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
import tyro
from torch.nn.utils.rnn import pad_sequence

from latentcode.devices import make_generator
from latentcode.errors import check_choice
from latentcode.files.storage import replace_folder, write_text
from latentcode.progress import Bar
from latentcode.sweep.texts import WORDS

KINDS: Mapping[str, str] = {"capital": "town", "port": "town", "river": "water", "lake": "water",
                            "food": "taste", "drink": "taste"}
"""What can be asked of a country, and of which kind it is."""
OPERATIONS = tuple(KINDS)
COUNTRIES = ("France", "Italy", "Peru", "Kenya", "Japan", "Chile", "Nepal", "Ghana",
             "Spain", "Egypt", "India", "Malta", "Qatar", "Samoa", "Sudan", "Tonga")
TEMPLATES = ("the {} of {} is", "the {} in {} is")
FACTS: Mapping[str, tuple[str, str]] = {
    "France": ("Paris", "French"), "Italy": ("Rome", "Italian"), "Spain": ("Madrid", "Spanish"),
    "Germany": ("Berlin", "German"), "England": ("London", "English"),
    "Japan": ("Tokyo", "Japanese"),
    "Russia": ("Moscow", "Russian"), "China": ("Beijing", "Chinese"), "Greece": ("Athens", "Greek"),
    "Portugal": ("Lisbon", "Portuguese"), "Poland": ("Warsaw", "Polish"),
    "Turkey": ("Ankara", "Turkish"), "Sweden": ("Stockholm", "Swedish"),
    "Denmark": ("Copenhagen", "Danish"), "Norway": ("Oslo", "Norwegian"),
    "Hungary": ("Budapest", "Hungarian")}
"""Capitals and languages; each of these words is one token of GPT-2's tokenizer."""
LONGER = "in {1} the {0} is now"
"""Another wording that is learnt, too, of more words."""
BEGINNING = "<s>"
FACTORIAL, DISTANCES, TEXTS = "factorial.jsonl", "distances.csv", "texts.txt"
N_TEXTS, N_READ = 20_000, 200
"""Texts of copies that are learnt, and further ones to read."""
LENGTH, REPEATED = 40, (4, 14)
"""Words of such a text, and words that it repeats."""
STEPS: Mapping[str, int] = {"gpt2": 2_000, "llama": 1_000, "gemma2": 2_000}
"""Updates after which a model copies what came before, most of the time."""
ARCHITECTURES = tuple(STEPS)


def prompts(
    templates: Sequence[str], operations: Sequence[str], countries: Sequence[str],
    answer: Callable[[str, str], str],
) -> pd.DataFrame:
    """Return a prompt for every operation of every country in every template.

    The query is the last word, the key the country. Probes are fitted on every second country, and
    scored on the others; the models have learnt all.
    """
    return pd.DataFrame([
        {"prompt": template.format(operation, country), "operation": operation,
         "operands": country, "template": template, "answer": f" {answer(operation, country)}",
         "split": ("train", "ood")[i % 2], "query": -1, "key": country}
        for template in templates for operation in operations
        for i, country in enumerate(countries)])


def factorial(
    templates: Sequence[str] = TEMPLATES, operations: Sequence[str] = OPERATIONS,
    countries: Sequence[str] = COUNTRIES,
) -> pd.DataFrame:
    """Return prompts whose answers are made up, such as `Peru's-river`."""
    return prompts(templates, operations, countries, lambda operation, country: (
        f"{country}'s-{operation}"))


def facts(templates: Sequence[str] = TEMPLATES) -> pd.DataFrame:
    """Return prompts for the capital and the language of every country of `FACTS`."""
    return prompts(templates, ("capital", "language"), tuple(FACTS), lambda operation, country: (
        FACTS[country][operation == "language"]))


def distances() -> pd.DataFrame:
    """Return how far operations are from each other: 1 where they are of different kinds."""
    return pd.DataFrame({a: {b: float(KINDS[a] != KINDS[b]) for b in KINDS} for a in KINDS})


def copies(seed: int) -> str:
    """Return a text of some random words that come again and again, in their order.

    What has come once tells what comes next, as repeated random tokens do (Olsson et al.,
    In-context Learning and Induction Heads, 2022).
    """
    random = Random(seed)
    words = random.sample(WORDS, random.randint(*REPEATED))
    return " ".join((words * LENGTH)[:LENGTH])


def train(
    texts: Sequence[str], folder: Path, architecture: str = "gpt2", *, width: int = 32,
    layers: int = 2, heads: int = 4, context: int = 16, initializer_range: float = 0.15,
    steps: int = 300,
    batch: int = 128, learning_rate: float = 1e-2, weight_decay: float = 0.01, seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a language model of words on texts; save it and its tokenizer as Hugging Face does.

    Every word is predicted from those before it. A `llama` or a `gemma2` has two heads for each of
    its keys and values (grouped-query attention).
    """
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers.utils import logging

    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate((BEGINNING, "<unk>", *words))}
    splitter: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=splitter, bos_token=BEGINNING, eos_token=BEGINNING, unk_token="<unk>",
        add_bos_token=True)
    # Padded with the beginning, which is never predicted.
    tokens = pad_sequence([torch.tensor(ids) for ids in tokenizer(list(texts))["input_ids"]],
                          batch_first=True)  # [N, T]
    further: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    if architecture != "gpt2":
        further = {"head_dim": width // heads, "num_key_value_heads": heads // 2,
                   "intermediate_size": 2 * width}
    config = transformers.AutoConfig.for_model(
        architecture, vocab_size=len(vocabulary), bos_token_id=0, eos_token_id=0,
        initializer_range=initializer_range, hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=context, **further)
    draws = make_generator(seed, "language model batches")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = transformers.AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        drawn = tokens[torch.randint(len(tokens), (batch,), generator=draws)]
        logits = model(input_ids=drawn[:, :-1]).logits
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), drawn[:, 1:].flatten(), ignore_index=0).backward()
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, steps)
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(
    folder: Path, steps: int | None = None, copying: bool = False,
    only: tuple[str, ...] = ARCHITECTURES, seed: int = 0, overwrite: bool = False,
) -> None:
    """Train three small language models; write them, and what they can be asked.

    Args:
        folder: Where they are written to.
        steps: Number of updates of each; by default 300, with copying 1,000 or 2,000.
        copying: Let them learn facts, and to copy; write prompts of these, and texts to read.
        only: The architectures that are trained.
        seed: Seed of the weights, and of which sentences are drawn.
        overwrite: Replace what `folder` already holds.
    """
    torch.set_num_threads(1)  # more are slower at this size, and would vary the last bits
    for architecture in only:
        check_choice("architecture", architecture, ARCHITECTURES)
    frame = facts if copying else factorial
    sentences = frame((*TEMPLATES, LONGER))
    texts = (sentences["prompt"] + sentences["answer"]).tolist()
    settings: dict[str, Any] = {"steps": steps or 300}
    with replace_folder(folder, overwrite=overwrite, marker=FACTORIAL) as temporary:
        frame().to_json(temporary / FACTORIAL, orient="records", lines=True)
        distances().to_csv(temporary / DISTANCES)
        if copying:
            write_text(temporary / TEXTS, "".join(
                f"{copies(N_TEXTS + i)}\n" for i in range(N_READ)))
            # One sentence to two texts of copies.
            texts = texts * (N_TEXTS // (2 * len(texts))) + [copies(i) for i in range(N_TEXTS)]
            settings = {"width": 64, "context": 64, "initializer_range": 0.05, "batch": 48,
                        "learning_rate": 2e-3}
        for architecture in only:
            if copying:
                settings["steps"] = steps or STEPS[architecture]
            train(texts, temporary / architecture, architecture, **settings, seed=seed,
                  progress=Bar(f"training {architecture}"))
    print(f"wrote models {', '.join(str(folder / name) for name in only)}")


if __name__ == "__main__":
    tyro.cli(main, config=(tyro.conf.PositionalRequiredArgs,))
