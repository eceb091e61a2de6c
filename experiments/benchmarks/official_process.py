"""The official code as a contestant: a process under its own Python that answers requests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentcode.config import LogicConfig, RunConfig, SravenConfig
from latentcode.devices import available_cores
from latentcode.errors import ConfigError, LatentCodeError, check
from latentcode.experiments.benchmarks import official_worker as worker
from latentcode.models.config import kind_of

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Settings of our own process that the official one must not inherit."""


class OfficialError(LatentCodeError):
    """The official code, or the Python that is to run it, cannot do what was asked."""


class OfficialProcess:
    """A worker (`official_worker.py`) that was started for one checkout of the official code."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request; `OfficialError` says what the worker said instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        check(bool(line), f"the official code's process ended with code {self.process.poll()}; "
              "its messages are above", OfficialError)
        answer: dict[str, Any] = json.loads(line)
        check("error" not in answer, f"the official code failed at {request['do']!r}: "
              f"{answer.get('error')}", OfficialError)
        return answer

    def build(self, config: RunConfig) -> dict[str, Any]:
        """Set up the official training of a configuration and return what was set up."""
        return self.ask(do="build", **official_setting(config))


@contextmanager
def official_process(checkout: Path, python: str, threads: int) -> Iterator[OfficialProcess]:
    """Start a worker, and end it.

    checkout  of github.com/smonsays/hypernetwork-attention
    python    a Python that has what the official code imports
    threads   cores that it may use

    `ConfigError` where either is not what it should be.
    """
    for name in ("hyla/experiment.py", "configs/raven.py", "configs/logic.py"):
        check((checkout / name).is_file(), f"official is {str(checkout)!r}, which has no {name}; "
              "expected a checkout of github.com/smonsays/hypernetwork-attention")
    environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    # Our own packages would shadow those of the other Python.
    environment.pop("PYTHONPATH", None)
    command = [python, str(Path(worker.__file__).resolve()), str(checkout.resolve())]
    if threads < available_cores():
        command.append(str(threads))
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env=environment)
    except OSError as error:
        raise ConfigError(f"official_python is {python!r}, which cannot be started ({error}); "
                          "expected a Python that has jax, flax and optax") from None
    with process:
        try:
            yield OfficialProcess(process)
        finally:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already
                process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


def official_setting(config: RunConfig) -> dict[str, Any]:
    """Return the `build` request that gives the official code our configuration."""
    task, model, training = config.task, config.model, config.training
    kind = kind_of(model)
    check(kind in worker.MIXERS, f"the attention kind is {kind!r}; expected one of "
          f"{', '.join(worker.MIXERS)} to compare with the official code")
    data: dict[str, Any] = {"num_train": training.steps * training.batch_size}
    if isinstance(task, LogicConfig):
        data |= {"seq_len": task.n_examples, "num_variables": task.n_variables,
                 "num_terms": task.n_terms, "frac_test": task.ood_fraction,
                 "frac_ood_conj": task.unknown_fraction}
    elif isinstance(task, SravenConfig):
        data |= {"num_features": task.n_features, "feature_maxval": task.n_values,
                 "grid_size": task.grid_size, "permute_features": task.permuted,
                 "frac_ood": task.ood_fraction}
    else:
        raise ConfigError(f"the task is {task.name!r}; expected one of "
                          f"{', '.join(worker.CONFIGS)} to compare with the official code")
    return {
        "task": task.name, "kind": kind, "data": data,
        "training": {"batch_size": training.batch_size, "seed": training.seed,
                     "lr": training.learning_rate, "weight_decay": training.weight_decay,
                     "warmup_steps": training.warmup_steps},
        "model": {"num_layers": model.n_layers, "num_heads": model.n_heads,
                  "emb_dim": model.d_model, "qk_dim": model.n_heads * model.d_head,
                  "v_dim": model.n_heads * model.d_head_v, "mlp_dim": model.d_mlp,
                  "attention_dropout_rate": model.attention_dropout}}


@dataclass(frozen=True)
class OfficialSteps:
    """The contestant: `what` is `step`, or `update` alone."""

    process: OfficialProcess
    what: str
    name: str = "official"
    multiple: int = 1

    def seconds(self, n: int) -> float:
        """Return the seconds of n steps or updates, as the worker measured them."""
        return float(self.process.ask(do="time", what=self.what, n=n)["seconds"])
