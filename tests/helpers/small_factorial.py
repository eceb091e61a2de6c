"""Tiny language models that have learnt a factorial of prompts: what a country has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

OPERATIONS = ("capital", "food", "river")
COUNTRIES = ("France", "Italy", "Peru", "Kenya", "Japan", "Chile", "Nepal", "Ghana")
TEMPLATES = ("the {} of {} is", "the {} in {} is")
BEGINNING = "<s>"
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16,
                            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
                            "initializer_range": 0.15}),
    **{architecture: (f"{name}Config", {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16,
        "initializer_range": 0.15})
       for architecture, name in (("llama", "Llama"), ("gemma2", "Gemma2"))}}


def factorial_prompts(templates: tuple[str, ...] = TEMPLATES) -> pd.DataFrame:
    """Return every operation of every country in every template; half of the countries are held
    out."""
    return pd.DataFrame([
        {"prompt": template.format(operation, country), "operation": operation,
         "operands": country, "template": template, "answer": f" {country}'s-{operation}",
         "split": ("train", "ood")[i % 2], "query": -1, "key": operation}
        for template in templates for operation in OPERATIONS
        for i, country in enumerate(COUNTRIES)])


class LearntModels:
    """Folders of models by the name of their architecture."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, architecture: str) -> Path:
        folder = self.root / architecture
        if not folder.exists():
            _save(architecture, folder)
        return folder


def _save(architecture: str, folder: Path, steps: int = 150) -> None:
    """Train a model of two layers on all of `factorial_prompts`; save it as Hugging Face does."""
    import torch
    import torch.nn.functional as F
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    frame = factorial_prompts((*TEMPLATES, "in {1} the {0} is now"))
    texts = [f"{row.prompt}{row.answer}" for row in frame.itertuples()]
    words = dict.fromkeys(word for text in texts for word in text.split())
    splitter: Any = Tokenizer(models.WordLevel(
        {word: i for i, word in enumerate((BEGINNING, "<unk>", *words))}, unk_token="<unk>"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=splitter, bos_token=BEGINNING, eos_token=BEGINNING, unk_token="<unk>",
        pad_token=BEGINNING)
    tokens = tokenizer([BEGINNING + text for text in texts], padding=True,
                               return_tensors="pt")["input_ids"]
    name, sizes = CONFIGS[architecture]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(getattr(transformers, name)(
            vocab_size=len(words) + 2, bos_token_id=0, eos_token_id=0, pad_token_id=0, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(steps):
        logits = model(input_ids=tokens[:, :-1],
                       attention_mask=torch.ones_like(tokens[:, 1:])).logits
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0).backward()
        optimizer.step()
        schedule.step()
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
