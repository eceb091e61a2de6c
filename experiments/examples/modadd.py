"""What is a + b modulo p? A task of one's own: numbers are points on a circle, like hours.

    latentcode train modadd --import modadd.py --out runs/modadd
    latentcode decode runs/modadd --import modadd.py --out results/modadd
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import ClassVar, Literal

import pandas as pd
import torch
from torch import Tensor

import latentcode as lc
from latentcode.errors import check, check_whole
from latentcode.tasks.base import split_combinations

TOKENS = ("first", "second", "answer")


@dataclass(frozen=True)
class ModAddConfig:
    name: Literal["modadd"] = "modadd"
    modulus: int = 23
    """p, how many numbers there are."""
    ood_fraction: float = 0.3
    """Share of the pairs of numbers that is held out of training."""
    split_seed: int = 0
    """Seed of the split."""
    d_input: ClassVar[int] = 3  # a token: cosine, sine, and whether it asks for the answer
    d_output: ClassVar[int] = 2  # cosine and sine of the answer
    n_tokens: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_whole("task.modulus", self.modulus, 2)
        check_whole("task.split_seed", self.split_seed, 0)
        n_pairs = self.modulus * (self.modulus + 1) // 2
        check(1 <= self.ood_fraction * n_pairs < n_pairs, f"task.ood_fraction is "
              f"{self.ood_fraction}; expected a share of the {n_pairs} pairs that holds out one")


@lc.register_task("modadd", config=ModAddConfig)
class ModularAddition(lc.Task):
    constituent, headline = "term", "accuracy"
    splits = ("train", "test", "ood")
    probe_labels = ("sum", "terms")
    token_names = TOKENS
    config: ModAddConfig

    def __init__(self, config: ModAddConfig) -> None:
        super().__init__(config)
        every = list(combinations_with_replacement(range(config.modulus), 2))
        train, ood = map(torch.tensor, split_combinations(
            every, config.modulus, config.ood_fraction, config.split_seed, distinct=False))
        self._combinations = {"train": train, "test": train, "ood": ood}

    @property
    def pairs(self) -> dict[str, lc.Pair]:
        names = {f"answer->{key}": f"the answer attending to the {key}" for key in reversed(TOKENS)}
        return {name: lc.Pair(name, description) for name, description in names.items()}

    def combinations(self, split: str) -> Tensor:
        self.check_split(split)
        return self._combinations[split]

    def sample(self, split: str, n: int, generator: torch.Generator) -> lc.Batch:
        def draw(most: int) -> Tensor:
            return torch.randint(most, (n,), generator=generator, device=generator.device)

        known = self.combinations(split).to(generator.device)
        which = draw(len(known))
        terms = torch.where(draw(2)[:, None] == 0, known[which], known[which].flip(1))
        numbers = torch.nn.functional.pad(self.on_circle(terms), (0, 1))  # [B, 2, 3]
        asking = torch.tensor([0.0, 0.0, 1.0], device=generator.device).expand(n, 1, 3)
        return lc.Batch(torch.cat([numbers, asking], 1),
                        terms.sum(1, keepdim=True) % self.config.modulus, which,
                        {"terms": terms}, split)

    def positions(self, names: Sequence[str], batch: lc.Batch) -> tuple[Tensor, Tensor]:
        self.check_pairs(names)
        keys = [TOKENS.index(name.removeprefix("answer->")) for name in names]
        key = torch.tensor(keys, device=batch.inputs.device).expand(len(batch), -1)
        return torch.full_like(key, 2), key

    def on_circle(self, numbers: Tensor) -> Tensor:
        angle = 2 * torch.pi * numbers / self.config.modulus
        return torch.stack([angle.cos(), angle.sin()], -1)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits[:, -1] - self.on_circle(targets[:, 0])).square().sum(-1)

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        every = self.on_circle(torch.arange(self.config.modulus, device=logits.device))
        return (logits[:, -1:] @ every.T).argmax(-1)  # the number that lies nearest

    def measures(self, logits: Tensor, batch: lc.Batch) -> dict[str, Tensor]:
        right = self.answers(logits, batch.targets) == batch.targets
        return {"loss": self.losses(logits, batch.targets), "accuracy": right[:, 0].float()}

    def labels(self, batch: lc.Batch) -> pd.DataFrame:
        terms = batch.info["terms"].cpu()
        return pd.DataFrame({
            "term_1": terms[:, 0], "term_2": terms[:, 1], "sum": batch.targets[:, 0].cpu(),
            "combination": [f"{a} + {b}" for a, b in terms.sort(1).values.tolist()],
            "split": batch.split})
