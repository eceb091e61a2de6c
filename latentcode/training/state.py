"""One model in training: batches, AdamW, an update, evaluation, and what the next update needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import cos, pi
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from latentcode.config import RunConfig, TrainingConfig
from latentcode.devices import check_precision, make_generator, resolve_device
from latentcode.errors import ArtifactError, check, check_count
from latentcode.metrics import Metric
from latentcode.models.blocks import Generators
from latentcode.models.hooks import evaluating, is_hooked
from latentcode.models.kernels.gpu.available import why_not
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.tasks import make_task, try_task
from latentcode.tasks.base import DRAW, Batch, Task
from latentcode.training.processes import ALONE, Group

COMPILER = "inductor"
"""What `torch.compile` makes of a step."""
CHUNK = 32
"""Updates whose batches are drawn together: drawing is many small operations, whose overhead
would otherwise be paid in every update."""
DATA = "data"
"""What a checkpoint calls the place in a text."""
BETAS = (0.9, 0.999)
EPSILON = 1e-8
FINAL_FRACTION = 0.1
"""Share of the peak learning rate that remains after the cosine (official schedule)."""


def learning_rate(step: int, config: TrainingConfig) -> float:
    """lr(t): from 0 to the peak over the warm-up, by a cosine to a tenth of it, then constant.

    `step` counts from 0, so that the first update has learning rate 0 when there is a warm-up.
    The cosine takes `steps - 2 * warmup_steps` updates, as in the official code, and ends at
    `steps - warmup_steps`.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if step < warmup:
        return peak * step / warmup
    progress = min((step - warmup) / (config.steps - 2 * warmup), 1.0)
    fraction = FINAL_FRACTION + (1.0 - FINAL_FRACTION) * (1.0 + cos(pi * progress)) / 2.0
    return peak * fraction


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give all parameters the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value


def is_decayed(parameter: Tensor) -> bool:
    """Whether weight decay applies: to every tensor that is not one-dimensional.

    As in the official code this spares LayerNorm and the biases of dense layers, but not the
    query, key and value biases [H, d_head], the relative position bias and embeddings.
    """
    return parameter.ndim != 1


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """p <- p - lr (m / (sqrt(v) + 1e-8) + weight_decay p): AdamW with betas 0.9 and 0.999.

    The decay is decoupled and masked by `is_decayed`. The learning rate starts at that of
    step 0 and is set for every step by the training loop.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if is_decayed(p)], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if not is_decayed(p)], "weight_decay": 0.0},
    ]
    # One kernel for all tensors: about a fifth of the time of a loop over them, CPU included.
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate(0, config),
                             betas=BETAS, eps=EPSILON, fused=True)


def adamw_rates(step: int, config: TrainingConfig) -> tuple[float, float, float]:
    """Return lr(t), lr(t) / (1 - beta1^(t+1)) and 1 / sqrt(1 - beta2^(t+1)) of update t, from 0."""
    rate = learning_rate(step, config)
    return (rate, rate / (1.0 - BETAS[0]**(step + 1)),
            1.0 / math.sqrt(1.0 - BETAS[1]**(step + 1)))


def adamw_(
    weights: Tensor, gradients: Tensor, moments: tuple[Tensor, Tensor], rates: Tensor,
    decay: Tensor,
) -> None:
    """One update, in place, of the AdamW of `make_optimizer` for the members of an ensemble.

    weights, gradients, moments  [E, parameters]
    rates                        [3, E, 1], the `adamw_rates` of every member
    decay                        [E, parameters], weight decay where `is_decayed`, else 0

    torch's own takes a learning rate per group of tensors, and would need a launch per member. On
    a GPU with Triton this is one launch.
    """
    if weights.device.type == "cuda" and why_not(weights.device) is None:
        from latentcode.training.optimizer_on_gpu import adamw

        return adamw(weights, gradients, *moments, rates, decay, *BETAS, EPSILON)
    first, second = moments
    rate, first_rate, second_scale = rates
    first.lerp_(gradients, 1.0 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1.0 - BETAS[1])
    weights.mul_(1.0 - rate * decay)
    weights.sub_(first_rate * first / (second.sqrt() * second_scale + EPSILON))


def forward(
    model: nn.Module, task: Task, inputs: Tensor, precision: str, generator: Generators = None,
    *, one_hot: bool = False, recompute: bool = False,
) -> Tensor:
    """Return the logits of the tokens that the task reads, [*E, B, n_read or T, d_output].

    They are of the type of the weights.

    With precision `bf16` the model runs under bfloat16 autocast, with `bf16_mlp` its feed-forward
    layers do; losses are float32 all the same. `generator` draws the dropout masks of a model in
    training mode; `one_hot` says of the inputs what it says of a `Batch`. For `recompute` see
    `HookedTransformer.forward`.
    """
    low = precision == "bf16"
    feedforward_dtype = torch.bfloat16 if precision == "bf16_mlp" else None
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=low):
        logits: Tensor = model(inputs, generator=generator, feedforward_dtype=feedforward_dtype,
                               read=task.check_n_read(), one_hot=one_hot, recompute=recompute)
    return logits.float() if low else logits


@contextmanager
def matrix_products(precision: str) -> Iterator[None]:
    """Let float32 matrix products, backward passes included, be TF32 where `precision` is tf32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@watched("evaluating")
def evaluate(
    model: nn.Module,
    task: Task,
    split: str,
    n: int,
    *,
    seed: int,
    batch_size: int = 128,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    progress: Progress | None = None,
) -> dict[str, Metric]:
    """Return the task's metrics, each a mean over the same n instances for every model.

    Metrics of one rule or term are named `metric[constituent]`; see `summarize` of the task.

    Which instances those are depends on (seed, split, n) and the kind of device alone. Unlike
    in the official code, no mean of batch means is taken. `SplitError` says why a task lacks a
    split.

    Args:
        progress: Called with (instances done, n).
    """
    task.check_split(split)
    check_count("n", n)
    check_count("batch_size", batch_size)
    measures: dict[str, list[Tensor]] = {}
    done = 0
    with evaluating(model), matrix_products(precision):
        for batch in batches_of(task, split, n, seed, batch_size, device):
            logits = forward(model, task, batch.inputs, precision, one_hot=batch.one_hot)
            for name, values in (task.measures(logits, batch)
                                  | task.constituent_measures(logits, batch)).items():
                measures.setdefault(name, []).append(values)
            done += len(batch)
            if progress is not None:
                progress(done, n)
    return task.summarize({name: torch.cat(values).cpu().numpy().astype(np.float64)
                           for name, values in measures.items()})


def batches_of(
    task: Task, split: str, n: int, seed: int, batch_size: int, device: torch.device | str
) -> Iterator[Batch]:
    generator = make_generator(seed, f"evaluate {split}", device)
    for start in range(0, n, DRAW):
        drawn = task.sample(split, min(DRAW, n - start), generator)
        for first in range(0, len(drawn), batch_size):
            yield drawn[first:first + batch_size]


class TrainingBatches:
    """The batches of one run: that of a step depends on (task, seed, batch size, step) alone.

    Steps CHUNK c to CHUNK (c + 1) - 1 share a generator of their own, so that training can begin
    or resume at any step without a state of the stream. Of a task that reads its instances in
    order, step s has those from s * batch_size on.
    """

    def __init__(self, task: Task, seed: int, batch_size: int, device: torch.device) -> None:
        self.task, self.seed, self.batch_size, self.device = task, seed, batch_size, device
        self._in_order = task.in_order(seed)
        self._drawn: tuple[int, Batch] | None = None

    def chunk(self, index: int) -> Batch:
        """Return the instances of CHUNK successive updates, those of step CHUNK * index first."""
        if self._drawn is None or self._drawn[0] != index:
            n = CHUNK * self.batch_size
            if self._in_order is None:
                generator = make_generator(self.seed, f"train data {index}", self.device)
                self._drawn = index, self.task.sample("train", n, generator)
            else:
                self._drawn = index, self._in_order.read(index * n, n, self.device)
        return self._drawn[1]

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of an update, which counts from 0."""
        index, place = divmod(step, CHUNK)
        return self.chunk(index)[place * self.batch_size:(place + 1) * self.batch_size]

    def forget(self) -> None:
        """Free the memory of the instances drawn last; they are drawn again when asked for."""
        self._drawn = None

    def cursor(self, step: int) -> dict[str, Mapping[str, Any]]:
        """Return what a checkpoint keeps, beside the step, of where an order goes on."""
        return {} if self._in_order is None else {
            DATA: self._in_order.cursor(step // CHUNK * CHUNK * self.batch_size)}

    def go_to(self, cursor: Mapping[str, Any] | None) -> None:
        """Take what `cursor` returned to an earlier process under `DATA`."""
        if self._in_order is not None and cursor is not None:
            self._in_order.go_to(cursor)


def training_step(
    model: nn.Module,
    task: Task,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    *,
    precision: str = "float32",
    grad_clip: float | None = None,
    generator: torch.Generator | None = None,
    accumulate: int = 1,
    recompute: bool = False,
) -> Tensor:
    """Update the weights once and return the loss before the update, a scalar on the device.

    model       a hooked transformer, or what wraps one: compiled, `DistributedDataParallel`
    batch       what this process sees of the update's batch
    generator   draws the dropout masks, the same for every micro-batch
    accumulate  micro-batches, whose gradients are added up: less memory
    recompute   keep no activations within blocks: less memory, a third more time

    Nothing here waits for the device.
    """
    parts = [batch] if accumulate == 1 else batch.divided(accumulate)
    start = generator.get_state() if generator is not None and len(parts) > 1 else None
    losses = []
    optimizer.zero_grad(set_to_none=True)
    with matrix_products(precision):
        for number, part in enumerate(parts, 1):
            if generator is not None and start is not None:
                generator.set_state(start)
            # The gradients of several processes stay where they are while more are to be added.
            stay = number < len(parts) and isinstance(model, DistributedDataParallel)
            with model.no_sync() if stay else nullcontext():  # type: ignore[operator]
                logits = forward(model, task, part.inputs, precision, generator,
                                 one_hot=part.one_hot, recompute=recompute)
                loss = task.loss(logits, part) / len(parts)
                loss.backward()
            losses.append(loss.detach())
    if grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


@dataclass
class TrainingState:
    """A model, its optimiser, its random streams, and the losses not yet recorded.

    To a `Session` it is a learner with one member. Where several processes train it (`join`), each
    has a state of its own with the same weights.
    """

    config: RunConfig
    task: Task
    model: HookedTransformer
    optimizer: torch.optim.Optimizer
    generators: dict[str, torch.Generator]
    """`dropout` draws the masks."""
    batches: TrainingBatches
    step: int = 0
    """Number of updates done."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the updates since the last record, on the device; of the share of this process."""
    group: Group = ALONE
    """The processes that train the model."""
    network: nn.Module | None = None
    """What is called in training, where it is not the model itself."""

    @classmethod
    def start(cls, config: RunConfig) -> TrainingState:
        """Return the state before the first update, which the configuration determines."""
        settings = config.training
        device = resolve_device(settings.device)
        check_precision(settings.precision, device)
        task = make_task(config.task)
        config = replace(config, task=task.config)  # which says what state a text is in
        try_task(task, *task.splits)
        model = HookedTransformer(config.model, seed=settings.seed).to(device).train()
        return cls(
            config, task, model, make_optimizer(model, settings),
            {"dropout": make_generator(settings.seed, "train dropout", device)},
            TrainingBatches(task, settings.seed, settings.batch_size, device))

    def update(self) -> None:
        """Update the weights once."""
        settings = self.config.training
        if settings.compile:
            hooked = [name for name, part in self.model.named_modules() if is_hooked(part)]
            check(not hooked, f"there is a hook on {', '.join(hooked[:3])}, and a compiled step "
                  "does not call it; expected none, or training.compile=False")
        set_learning_rate(self.optimizer, learning_rate(self.step, settings))
        batch = self.batches[self.step]
        if self.group.size > 1:
            batch = batch.divided(self.group.size)[self.group.rank]
        drops = self.config.model.attention_dropout > 0.0
        self.losses.append(training_step(
            self.model if self.network is None else self.network, self.task, batch, self.optimizer,
            precision=settings.precision, grad_clip=settings.grad_clip,
            generator=self.generators["dropout"] if drops else None,
            accumulate=settings.accumulate, recompute=settings.checkpoint_activations))
        self.step += 1

    def join(self, group: Group) -> None:
        """Train with other processes from now on, each with its share of every batch.

        Their weights become those of the first. `ConfigError` where the shares are not equal, or
        where each would drop other codes.
        """
        settings = self.config.training
        check_shares(self.config, group.size)
        self.group = group
        model: nn.Module = self.model
        if settings.compile:
            model = cast(nn.Module, torch.compile(model, backend=COMPILER))
        if group.size > 1:
            model = DistributedDataParallel(model)
        self.network = model

    def restore(self, runs: Sequence[Run], step: int) -> None:
        """Go to the checkpoint of a step of one run."""
        run, = runs
        checkpoint = run.load_checkpoint(step)
        checkpoint.restore_model(self.model)
        checkpoint.restore_optimizer(self.optimizer, self.model)
        checkpoint.restore_generators(self.generators)
        device = next(self.model.parameters()).device
        losses = checkpoint.extra.get("losses")
        if not isinstance(losses, list) or any(type(loss) is not float for loss in losses):
            raise ArtifactError(f"{checkpoint.path} has losses {losses!r}; expected a list of "
                                "numbers")
        self.losses = [torch.tensor(loss, device=device) for loss in losses]
        self.batches.go_to(checkpoint.extra.get(DATA))
        self.step = checkpoint.step

    def recent_losses(self) -> list[list[float]]:
        """Return the losses not yet recorded; this waits for the device."""
        return [self.group.mean(torch.stack(self.losses)).tolist() if self.losses else []]

    def forget_losses(self) -> None:
        """Drop the losses that have been recorded."""
        self.losses.clear()

    def weights_are_finite(self) -> list[bool]:
        """Return whether no weight is NaN or infinite; this waits for the device."""
        largest = nn.utils.get_total_norm(list(self.model.parameters()), norm_type=math.inf)
        return [math.isfinite(largest.item())]

    def member(self, index: int) -> TrainingState:
        """Return the state itself."""
        return self


def check_shares(config: RunConfig, n_processes: int) -> None:
    """Raise `ConfigError` unless a batch has equal shares, of which dropout drops the same."""
    settings = config.training
    n = n_processes * settings.accumulate
    check(settings.batch_size % n == 0, f"training.batch_size is {settings.batch_size}; expected a "
          f"multiple of {n}: {n_processes} process(es) with training.accumulate = "
          f"{settings.accumulate} micro-batches each")
    independent = (config.model.attention_dropout > 0.0
                   and config.model.attention_dropout_form == "independent")
    check(n == 1 or not independent, "model.attention_dropout_form is 'independent'; expected "
          "'shared' (or no dropout) where a batch is split among processes or micro-batches, "
          "which would otherwise draw the same masks for different instances")
