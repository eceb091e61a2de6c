"""How long does a training step take: ours, plain PyTorch, the official code?

    python -m latentcode.experiments.benchmarks.training_step \
        --official CHECKOUT --official-python PYTHON

measures, in turn in one sitting and at the paper's setting (batch 128, attention dropout 0.1),
milliseconds of

    step    draw a batch and update once, as each side's own training loop does
    update  the update alone, on a batch that was drawn before

and how many times faster than the official code we are. The comparison is of `step` with `step`;
`update` leaves the sampling out. "Plain PyTorch" is our model with attention computed by the
functions of `models/attention.py`, operation by operation; it is there where `train` computes it
otherwise. Without `--official` our own contestants run alone. Our batches are drawn many at a time:
a turn of ours is a whole number of such draws, the official loop draws every batch.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro

from latentcode.config import LogicConfig, RunConfig, SravenConfig, to_dict
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import LatentCodeError, check
from latentcode.experiments.benchmarks import official_worker as worker
from latentcode.experiments.benchmarks.harness import (
    Contestant,
    Kind,
    ModelBenchmark,
    Precision,
    TaskName,
    peak_memory,
    reset_peak_memory,
    sit,
    spread_text,
    timed,
    verdict,
)
from latentcode.figures.text import markdown_table
from latentcode.models.config import kind_of
from latentcode.models.kernels.fused import Case, kernel_for, written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset
from latentcode.progress import Bar
from latentcode.tasks import Batch
from latentcode.training.loop import Learner, make_learner
from latentcode.training.state import CHUNK, TrainingBatches, TrainingState

MEASURED: tuple[str, ...] = ("step", "update")
ON_A_GPU = 3.0
"""How many times as fast as the official code on the same GPU a step is to be."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Settings of our own process that the official one must not inherit."""


class OfficialError(LatentCodeError):
    """The official code, or the Python that is to run it, cannot do what was asked."""


@dataclass(frozen=True, kw_only=True)
class TrainingStep(ModelBenchmark):
    """Time training steps in turn; write JSON and a table."""

    QUESTION = "training_step"

    task: tuple[TaskName, ...] = ("sraven", "logic")
    """Tasks."""
    kinds: tuple[Kind, ...] = ("hyla", "softmax", "linear")
    """Attention kinds."""
    precision: tuple[Precision, ...] = ("float32",)
    """Precisions of our step; the official code runs as it is, in float32 (on a GPU its jax
    multiplies matrices in tf32 unless told otherwise)."""
    official: Path | None = None
    """A checkout of github.com/smonsays/hypernetwork-attention. Its jax chooses the device."""
    official_python: str = "python3"
    """A Python that has jax, flax, optax and chex."""
    rounds: int = 11

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        cases = []
        for name, kind in product(self.task, self.kinds):
            config = preset(self.size, name, kind)
            config = replace(config, training=replace(config.training, device=self.device))
            # A process for each case, since its peak memory cannot be reset.
            with (nullcontext() if self.official is None else official_process(
                    self.official, self.official_python, self.cores)) as official:
                cases.append(self.case(config, official))
        # What is to be reached on a GPU, beside the official code.
        verdicts = [verdict(f"{case['name']}, {name}", spread["median"], ON_A_GPU,
                            "times the official code's speed", at_least=True)
                    for case in cases if self.device != "cpu" and "official" in case
                    for name, spread in case["step"]["speedup"].items() if name.startswith("ours")]
        return cases, "\n\n".join([table(cases), *verdicts])

    def case(self, config: RunConfig, official: OfficialProcess | None) -> dict[str, Any]:
        """Return one case, all contestants at one task and attention kind."""
        device, training = resolve_device(self.device), config.training
        case: dict[str, Any] = {
            "name": f"{config.task.name}, {kind_of(config.model)}", "config": to_dict(config),
            "n_parameters": HookedTransformer(config.model).n_parameters,
            "input_shape": [training.batch_size, config.task.n_tokens, config.task.d_input]}
        if official is not None:
            case["official"] = official.ask(do="build", **official_setting(config))
            theirs, ours = ([side[key] for key in ("n_parameters", "input_shape")]
                            for side in (case["official"], case))
            check(ours == theirs, f"parameters and input shape are {ours} here and {theirs} in the "
                  "official code; expected the same, so that the same thing is timed")
        memory: dict[str, float] = {}

        def updates(
            name: str, precision: Precision, sampling: bool, alone: bool = False,
            context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        ) -> Contestant:
            """Return a contestant of ours, and note in `memory` what it needs."""
            used = torch.cuda.memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
            reset_peak_memory(device)
            trained = learner(replace(config, training=replace(training, precision=precision)),
                              sampling=sampling, alone=alone)
            update = timed(trained.update, device)

            def seconds(n: int) -> float:
                with context():
                    taken = update(n)
                trained.forget_losses()
                return taken

            seconds(2)
            memory[name] = max(peak_memory(device) - used, memory.get(name, 0.0))
            return Contestant(name, seconds, CHUNK if sampling else 1)

        attention = Case.of_training(config.model, device, torch.float32, config.task.n_tokens)
        for what in MEASURED:
            sampling = what == "step"
            contestants = [] if official is None else [official.contestant(what)]
            if kernel_for(attention) != "plain":
                contestants.append(updates("plain PyTorch, float32", "float32", sampling,
                                           alone=True, context=written_out))
            contestants += [updates(f"ours, {precision}", precision, sampling)
                            for precision in self.precision]
            case[what] = sit(contestants, **self.turns, progress=Bar(f"{case['name']}, {what}"))
        if official is not None:
            memory["official"] = official.ask(do="memory")["peak_mib"]
        return {**case, "peak_memory_mib": memory}


class SameBatches(TrainingBatches):
    """Batches that are drawn once, the first CHUNK, and then used again and again."""

    def chunk(self, index: int) -> Batch:
        return super().chunk(0)

    def forget(self) -> None:
        """Keep what was drawn."""


def learner(config: RunConfig, *, sampling: bool = True, alone: bool = False) -> Learner:
    """Return a training of one configuration.

    Without `sampling` batches are drawn once, so that updates alone are left; `alone` trains
    without the machinery of ensembles, otherwise as `train` does.
    """
    made: Learner = TrainingState.start(config) if alone else make_learner(config)
    if not sampling:
        state = made.member(0)
        state.batches = SameBatches(state.task, config.training.seed, config.training.batch_size,
                                    resolve_device(config.training.device))
    return made


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

    def contestant(self, what: str) -> Contestant:
        """Return the official `step`, or `update` alone, as the worker measures its seconds."""
        return Contestant(
            "official", lambda n: float(self.ask(do="time", what=what, n=n)["seconds"]))


@contextmanager
def official_process(checkout: Path, python: str, threads: int) -> Iterator[OfficialProcess]:
    """Run a worker on some cores, with a Python that has what the official code imports."""
    environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    # Our own packages would shadow those of the other Python.
    environment.pop("PYTHONPATH", None)
    command = [python, str(Path(worker.__file__).resolve()), str(checkout.resolve())]
    if threads < available_cores():
        command.append(str(threads))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment) as process:
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
    if isinstance(task, LogicConfig):
        data = {"seq_len": task.n_examples, "num_variables": task.n_variables,
                "num_terms": task.n_terms, "frac_test": task.ood_fraction,
                "frac_ood_conj": task.unknown_fraction}
    else:
        assert isinstance(task, SravenConfig)
        data = {"num_features": task.n_features, "feature_maxval": task.n_values,
                "grid_size": task.grid_size, "permute_features": task.permuted,
                "frac_ood": task.ood_fraction}
    return {
        "task": task.name, "kind": kind_of(model),
        "data": {"num_train": training.steps * training.batch_size, **data},
        "training": {"batch_size": training.batch_size, "seed": training.seed,
                     "lr": training.learning_rate, "weight_decay": training.weight_decay,
                     "warmup_steps": training.warmup_steps},
        "model": {"num_layers": model.n_layers, "num_heads": model.n_heads,
                  "emb_dim": model.d_model, "qk_dim": model.n_heads * model.d_head,
                  "v_dim": model.n_heads * model.d_head_v, "mlp_dim": model.d_mlp,
                  "attention_dropout_rate": model.attention_dropout}}


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per case and contestant."""
    rows = []
    for case in cases:
        for name in case["update"]["milliseconds"]:
            cells = [spread_text(measured[name]) if name in measured else ""
                     for what in MEASURED
                     for measured in (case[what]["milliseconds"], case[what]["speedup"])]
            memory = case["peak_memory_mib"].get(name)
            rows.append([case["name"], name, *cells, "" if memory is None else f"{memory:,.0f}"])
    faster = f"times faster than {cases[0]['step']['baseline']}"
    return markdown_table(["case", "contestant", "step, ms", faster, "update alone, ms", faster,
                           "peak memory, MiB"], rows)


if __name__ == "__main__":
    tyro.cli(TrainingStep).run()
