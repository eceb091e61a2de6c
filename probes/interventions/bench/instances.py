"""A model, a task and its instances: what is drawn for one of them, the same every time."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from latentcode.codes.instances import instances
from latentcode.config import TaskConfig
from latentcode.errors import ConfigError, UnknownNameError, check, check_count
from latentcode.models.layers import attention_layers
from latentcode.probes.interventions.references import References, measure
from latentcode.probes.interventions.sites import Place, check_written
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.subjects import subject
from latentcode.subjects.of_tasks import TaskSubject
from latentcode.tasks import Task
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs
from latentcode.tasks.registry import chosen_pairs

DRAWS = 8
"""How often each control is drawn: one same-rule source or random code more or less says little."""
KEPT = 256
"""Minimal pairs that are kept: what shows an outcome asks for the same ones again."""


class Instances:
    """A model, instances, and what is drawn for them; `Bench` writes into their codes.

    model  anything with `cfg` and `run_with_hooks`
    task   `make_counterfactuals(make_task(...), factorial=False)`
    batch  the instances, numbered from 0
    seed   of sources and of noise: the same patch gives the same outcome
    n_reference  training instances that `mean` codes are taken of, when they are first asked for

    `ConfigError` for a task that offers no minimal pairs of a chosen constituent, or a model that
    does not go on with the codes that are written.
    """

    def __init__(
        self, model: Any, task: Counterfactuals, batch: Batch, *, seed: int = 0,
        n_reference: int = 1_024,
    ) -> None:
        chosen = chosen_pairs(task)
        check(len(batch) > DRAWS, f"there are {len(batch)} instances; expected at least "
              f"{DRAWS + 1}, so that {DRAWS} unrelated ones can be a control", ConfigError)
        check_count("n_reference", n_reference, 2)
        self.model, self.task, self.seed, self.n_reference = model, chosen, seed, n_reference
        self.device = next(model.parameters()).device
        self.batch = batch.to(self.device)
        self.places: tuple[Place, ...] = tuple(("code", i) for i in attention_layers(model))
        check_written(model, self.batch.inputs[:2], self.places)
        self._written, self._measured = {"code"}, dict[tuple[str, ...], References]()
        self._pairs: dict[tuple[int, int, str, int], MinimalPairs] = {}

    @classmethod
    def of_run(
        cls, run: Run | str | Path, problems: Task | TaskConfig | None = None, *,
        split: str = "ood", n: int = 2_000, n_reference: int = 1_024, step: int | None = None,
        seed: int = 0, device: str | None = None,
    ) -> Self:
        """Return the bench of a trained run; its instances are those of `extract`, by row.

        run       a run, its folder, or the name of a model of the zoo
        problems  the task that the codes were drawn from; default: the run's own
        split     which combinations
        n         instances, from the first
        n_reference  training instances that means are taken over
        step      the checkpoint; default: the newest
        seed      that of the extraction
        device    cpu or cuda; default: cpu
        """
        of = subject(run, problems, step=step, device=device)
        check(isinstance(of, TaskSubject), "the problems are prompts, whose constituents nobody "
              "can choose; expected a task", ConfigError)
        assert isinstance(of, TaskSubject)
        model = of.model()
        place = next(model.parameters()).device
        batch = instances(of.task, split, range(n), seed=seed, device=place)
        return cls(model, of.counterfactuals(factorial=False), batch, seed=seed,
                   n_reference=n_reference)

    def __len__(self) -> int:
        return len(self.batch)

    def targets(self, instance: int, which: int) -> tuple[str, ...]:
        """Return what can stand in place of a constituent of an instance."""
        self._check_which(instance, which)
        choices = self.task.choices(self.rows([instance]), self._number(which))[0]
        return tuple(name for name, possible in zip(
            self.task.constituents, choices.tolist(), strict=True) if possible)

    def pairs(self, instance: int, which: int, target: str, n: int = DRAWS) -> MinimalPairs:
        """Return n minimal pairs of one instance, with fresh sources each; `patch` has the
        first."""
        if target not in self.task.constituents:
            raise UnknownNameError("target", target, self.targets(instance, which))
        asked = instance, which, target, n
        if asked not in self._pairs:
            if len(self._pairs) >= KEPT:
                self._pairs.pop(next(iter(self._pairs)))
            wanted = self._number(self.task.constituents.index(target))
            self._pairs[asked] = self.task.with_target(
                self.rows([instance] * n), self._number(which).expand(n), wanted.expand(n),
                self.generator("donors", instance, which, target))
        return self._pairs[asked]

    @property
    def references(self) -> References:
        """The mean codes of training instances, by layer, slot and constituent."""
        return self.references_at(("code",))

    def references_at(self, sites: tuple[str, ...]) -> References:
        """Return the mean activations of training instances at some sites of every layer."""
        if sites not in self._measured:
            places = [(site, layer) for site in sites for _, layer in self.places]
            self._measured[sites] = measure(
                self.model, self.task, places, n=self.n_reference, seed=self.seed)
        return self._measured[sites]

    def is_measured(self, sites: tuple[str, ...]) -> bool:
        """Whether the means at some sites are known, which takes a while."""
        return sites in self._measured

    def check_sites(self, sites: Collection[str]) -> None:
        """Raise `ConfigError` where the model does not go on with what is written at a site."""
        for site in set(sites) - self._written:
            check_written(self.model, self.batch.inputs[:2],
                          [(site, layer) for _, layer in self.places])
            self._written.add(site)

    def _check_instance(self, instance: int) -> None:
        check(instance in range(len(self)), f"instance is {instance}; expected 0 to "
              f"{len(self) - 1}")

    def _check_which(self, instance: int, which: int) -> None:
        self._check_instance(instance)
        n_held = self.task.held(self.rows([instance])).shape[1]
        check(which in range(n_held), f"which is {which}; expected 0 to {n_held - 1}, one of the "
              f"{n_held} constituents of an instance")

    def unrelated(self, instance: int, generator: torch.Generator, n: int = DRAWS) -> Batch:
        """Return n other instances, at most `DRAWS`; fewer are the first of more."""
        order = torch.randperm(len(self) - 1, generator=generator, device=self.device)[:n]
        return self.batch[(instance + 1 + order) % len(self)]

    def rows(self, rows: list[int]) -> Batch:
        """Return instances by their numbers."""
        for row in set(rows):
            self._check_instance(row)
        return self.batch[torch.tensor(rows, device=self.device)]

    def _number(self, value: int) -> Tensor:
        return torch.tensor([value], device=self.device)

    def generator(self, purpose: str, instance: int, which: int, target: str) -> torch.Generator:
        """Return a generator that depends on these, the split and the seed of the bench."""
        return make_generator(self.seed, f"bench {purpose} {self.batch.split} {instance} {which} "
                              f"{target}", self.device)
