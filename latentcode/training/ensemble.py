"""Many models of one shape trained as one, on one device.

A single model of this size leaves a GPU idle: its step is bound by the launching of kernels. The
members of an ensemble share every launch, and the whole step is captured as a CUDA graph, so that
the processor launches one thing per update. Each member has its own seed, split, data, dropout,
learning rate, weight decay and warm-up, is trained as it would be alone, and ends as an
ordinary run folder.

The members are one `HookedTransformer` with a leading axis of members. That axis is explicit,
rather than one of `torch.func.vmap`, so that everything remains ordinary autograd, which can be
captured, compiled or hooked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.config import HOW_FIELDS, RunConfig, TrainingConfig, to_dict
from latentcode.devices import make_generator, resolve_device
from latentcode.errors import check
from latentcode.models.attention import dropout_mask
from latentcode.models.config import ModelConfig, own_parts
from latentcode.models.hooks import is_hooked
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.training.state import (
    CHUNK,
    TrainingState,
    adamw_,
    adamw_rates,
    forward,
    is_decayed,
    matrix_products,
)

FREE_TASK_FIELDS = ("split_seed", "ood_fraction", "held_out")
"""Fields of a task in which the members of an ensemble may differ."""
FREE_TRAINING_FIELDS = ("seed", "learning_rate", "weight_decay", "warmup_steps")
"""Fields of the training in which the members of an ensemble may differ."""
WARM_UP = 3
"""Calls before the capture, in which libraries choose their kernels and take their memory."""


def ensemble_key(config: RunConfig) -> str:
    """Return what the members of an ensemble have in common: all but the free fields, as JSON."""
    shared = to_dict(config)
    for part, free in (("task", FREE_TASK_FIELDS), ("training", FREE_TRAINING_FIELDS)):
        for name in free:
            shared[part].pop(name, None)
    return json.dumps(shared, sort_keys=True)


def can_be_drawn_ahead(config: ModelConfig) -> bool:
    """Whether there is dropout, with masks small enough to keep: one for a whole batch."""
    return config.attention_dropout > 0.0 and config.attention_dropout_form == "shared"


def draw_masks(
    config: ModelConfig, seeds: Sequence[int], index: int, inputs: Tensor, dtype: torch.dtype
) -> Float[Tensor, "N L E 1 1 T T"]:
    """m / (1 - p), m ~ Bernoulli(1 - p), for the L layers of E members in a chunk of N updates.

    index   of the chunk, as in `TrainingBatches`
    inputs  [N, E, B, T, ...], on the device where the masks are wanted
    dtype   of the masks, that of the weights

    A generator inside a captured step costs two launches per replay, and each mask another; drawn
    beforehand for many steps, all of them cost next to nothing. As for the batches, each member has
    a generator of its own for every chunk, so that training resumes at any step without a state of
    the stream.
    """
    generators = [make_generator(seed, f"train dropout {index}", inputs.device) for seed in seeds]
    n_updates, n_tokens = len(inputs), inputs.shape[3]
    drawn = dropout_mask(
        (n_updates * config.n_layers, 1, n_tokens, n_tokens), config.attention_dropout,
        "independent", generators, device=inputs.device, dtype=dtype)
    return drawn.unflatten(1, (n_updates, config.n_layers, 1)).movedim(0, 2).contiguous()


class StepGraph:
    """Calls `function` by replaying its kernels as one CUDA graph.

    function    takes tensors of the same shapes every time and returns one tensor; it may change
                the tensors `changes` and draw from `generators`, and nothing else
    generators  their states go on through replays as through calls
    changes     put back after the warm-up, like the states of the generators

    The results of replays equal those of calls. On a CPU, where there is nothing to capture, a
    replay is a call on the same fixed memory.
    """

    def __init__(
        self, function: Callable[..., Tensor], generators: Sequence[torch.Generator],
        changes: Sequence[Tensor],
    ) -> None:
        self.function, self.generators, self.changes = function, generators, changes
        self._inputs: list[Tensor] | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return what the function returns for these inputs; `ConfigError` for other shapes."""
        if self._inputs is None:
            self._inputs = [x.clone() for x in inputs]
            self._capture(self._inputs)
        pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for fixed, x in zip(self._inputs, inputs, strict=True):
            check(x.shape == fixed.shape, f"an input has shape {tuple(x.shape)}; expected "
                  f"{tuple(fixed.shape)}, that of the first call")
            targets, sources = pairs.setdefault(x.dtype, ([], []))
            targets.append(fixed)
            sources.append(x)
        for targets, sources in pairs.values():  # one launch for each type
            torch._foreach_copy_(targets, sources)
        self._replay()
        return self._output.clone()

    def _capture(self, inputs: Sequence[Tensor]) -> None:
        saved = [tensor.clone() for tensor in self.changes]
        states = [generator.get_state() for generator in self.generators]
        device = inputs[0].device

        def call() -> None:
            self._output = self.function(*inputs)

        if device.type == "cuda":
            with torch.cuda.device(device):
                # One stream for warm-up and capture: autograd remembers that of every weight.
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UP):
                        self.function(*inputs)
                torch.cuda.current_stream().wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                for generator in self.generators:
                    graph.register_generator_state(generator)
                with torch.cuda.graph(graph, stream=stream):
                    call()
            self._replay = graph.replay
        else:
            for _ in range(WARM_UP):
                call()
            self._replay = call
        for tensor, before in zip(self.changes, saved, strict=True):
            tensor.copy_(before)
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)


class Ensemble:
    """E models in training, as one learner of a `Session`.

    configs   one per member; they may differ in `FREE_TASK_FIELDS` and `FREE_TRAINING_FIELDS`
    graphed   whether to capture the step and replay it (see `StepGraph`); default: on a CUDA
              device, unless attention calls a function that a user registered, which might do
              what cannot be captured
    ahead     whether to draw the dropout masks of `CHUNK` updates at once (see `draw_masks`);
              default: on a CUDA device. A CPU draws them in every update, as for one model alone

    The weights and moments of all members lie in one tensor each, [E, parameters], so that AdamW
    is a dozen operations (on a GPU one) however many members and weights there are. The model and
    the optimiser of each member's own `TrainingState` are views of them.

    Raises `ConfigError` for configurations that cannot share an ensemble, and, with the next
    batches, for a hook on the model of a captured step, which would never be called.
    """

    def __init__(
        self, configs: Sequence[RunConfig], *, graphed: bool | None = None,
        ahead: bool | None = None,
    ) -> None:
        check(bool(configs), "configs is empty; expected at least one member")
        for index, config in enumerate(configs):
            check(ensemble_key(config) == ensemble_key(configs[0]),
                  f"member {index} cannot share an ensemble with member 0; expected configurations "
                  "that differ in nothing but "
                  f"{', '.join(FREE_TASK_FIELDS + FREE_TRAINING_FIELDS)}")
        self.settings = configs[0].training
        for name in HOW_FIELDS:
            value, default = getattr(self.settings, name), getattr(TrainingConfig(), name)
            check(value == default, f"training.{name} is {value!r}; expected {default!r} in an "
                  "ensemble, whose step is captured as it is")
        self.device = resolve_device(self.settings.device)
        self.states = [TrainingState.start(config) for config in configs]
        self.task = self.states[0].task
        self.model = HookedTransformer(
            configs[0].model, seed=[config.training.seed for config in configs]
        ).to(self.device).train()
        self.step = 0
        self._losses: list[Tensor] = []
        self._drawn: int | None = None
        self._chunk: tuple[Tensor, ...] = ()
        self._one_hot: bool | None = None
        self._own_the_weights()
        ahead = self.device.type == "cuda" if ahead is None else ahead
        self._ahead = ahead and can_be_drawn_ahead(configs[0].model)
        self._update: Callable[..., Tensor] = self._plain_update
        if graphed is None:
            graphed = self.device.type == "cuda" and not own_parts(configs[0].model)
        if graphed:
            self._update = StepGraph(
                self._plain_update, self._generators,
                changes=(self.weights, *self.moments))

    def _own_the_weights(self) -> None:
        """Lay the numbers of all members in one tensor, of which every model has views."""
        self.weights = torch.cat([p.data.flatten(1) for p in self.model.parameters()], dim=1)
        self.moments = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self._ones = self.weights.new_ones(len(self.states))
        decays = [state.config.training.weight_decay for state in self.states]
        masks = [torch.full((p.numel(),), float(is_decayed(p)))
                 for p in self.states[0].model.parameters()]
        self.decay = (torch.tensor(decays)[:, None] * torch.cat(masks)).to(self.weights)
        views = self._views(self.weights)
        for parameter, weights in zip(self.model.parameters(), views, strict=True):
            parameter.data = weights
        for index, state in enumerate(self.states):
            for parameter, weights in zip(state.model.parameters(), views, strict=True):
                parameter.data = weights[index]

    def _views(self, numbers: Tensor) -> list[Tensor]:
        """Return [E, parameters] as one view [E, *shape] per parameter."""
        shapes = [parameter.shape for parameter in self.states[0].model.parameters()]
        parts = numbers.split([shape.numel() for shape in shapes], dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]

    @property
    def _generators(self) -> list[torch.Generator]:
        """What a step draws from; a graph sets the state of each at every replay."""
        if self._ahead or self.model.config.attention_dropout == 0.0:
            return []
        return [state.generators["dropout"] for state in self.states]

    def update(self) -> None:
        """Update every member once."""
        index, place = divmod(self.step, CHUNK)
        if self._drawn != index:
            self._draw(index)
        self._losses.append(self._update(*(drawn[place] for drawn in self._chunk)))
        self.step += 1

    def _draw(self, index: int) -> None:
        """Draw what `CHUNK` updates take: inputs and targets [CHUNK, E, B, ...], rates
        [CHUNK, 3, E, 1] (see `adamw_`) and masks (see `draw_masks`) where they are drawn ahead."""
        chunks = [state.batches.chunk(index) for state in self.states]
        if isinstance(self._update, StepGraph):
            hooked = [name for name, part in self.model.named_modules() if is_hooked(part)]
            check(not hooked, f"there is a hook on {', '.join(hooked[:3])}, and a captured step "
                  "calls no Python; expected none, or graphed=False")
        one_hot = all(chunk.one_hot for chunk in chunks)
        # A captured step stays as it was captured.
        check(self._one_hot in (None, one_hot), f"batches of task {self.task.name!r} are one-hot "
              "in some steps and not in others; expected one or the other")
        self._one_hot = one_hot
        inputs, targets = (
            torch.stack([x.unflatten(0, (CHUNK, -1)) for x in numbers], dim=1)
            for numbers in ([chunk.inputs for chunk in chunks],
                               [chunk.targets for chunk in chunks]))
        # In the ensemble they are needed once; the members' own copies would double the memory.
        for state in self.states:
            state.batches.forget()
        rates = [[adamw_rates(step, state.config.training) for state in self.states]
                 for step in range(index * CHUNK, (index + 1) * CHUNK)]
        self._chunk = inputs, targets, torch.tensor(rates).movedim(2, 1).contiguous()[..., None].to(
            self.weights, non_blocking=True)  # or this waits for all updates so far
        if self._ahead:
            seeds = [state.config.training.seed for state in self.states]
            self._chunk += (draw_masks(
                self.model.config, seeds, index, inputs, self.weights.dtype),)
        self._drawn = index

    def _plain_update(
        self, inputs: Tensor, targets: Tensor, rates: Tensor, masks: Tensor | None = None
    ) -> Tensor:
        """Update the weights of all members once and return their losses before it, [E]."""
        draws = self._generators if masks is None else iter(masks.unbind())
        precision = self.settings.precision
        with matrix_products(precision):
            logits = forward(self.model, self.task, inputs, precision, draws,
                             one_hot=bool(self._one_hot))
            losses = self.task.losses(logits.flatten(0, 1), targets.flatten(0, 1))
            losses = losses.unflatten(0, (len(self.states), -1)).mean(1)
            # The loss of a member depends on no other's weights: this is every gradient at once,
            # that of the sum.
            parts = torch.autograd.grad(
                losses, list(self.model.parameters()), grad_outputs=self._ones)
        gradients = torch.cat([part.flatten(1) for part in parts], dim=1)
        if self.settings.grad_clip is not None:
            norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
            # The same bound as torch.nn.utils.clip_grad_norm_.
            gradients.mul_((self.settings.grad_clip / (norms + 1e-6)).clamp(max=1.0))
        with torch.no_grad():
            adamw_(self.weights, gradients, self.moments, rates, self.decay)
        return losses.detach()

    def recent_losses(self) -> list[list[float]]:
        """Return, per member, the losses not yet recorded; this waits for the device."""
        if not self._losses:
            return [[] for _ in self.states]
        losses: list[list[float]] = torch.stack(self._losses, dim=1).tolist()
        return losses

    def forget_losses(self) -> None:
        """Drop the losses that have been recorded."""
        self._losses.clear()

    def weights_are_finite(self) -> list[bool]:
        """Return, per member, whether no weight is NaN or infinite; this waits for the device."""
        finite: list[bool] = self.weights.isfinite().all(dim=1).tolist()
        return finite

    def member(self, index: int) -> TrainingState:
        """Return a member as a state of its own, whose tensors are the ensemble's."""
        state = self.states[index]
        state.step = self.step
        if self.step > 0:  # AdamW has no moments before its first step
            count = torch.tensor(float(self.step), device=self.device)
            first, second = (self._views(moment) for moment in self.moments)
            for place, parameter in enumerate(state.model.parameters()):
                state.optimizer.state[parameter] = {
                    "step": count, "exp_avg": first[place][index],
                    "exp_avg_sq": second[place][index]}
        return state

    def restore(self, runs: Sequence[Run], step: int) -> None:
        """Go to the checkpoints of a step, one run per member."""
        first, second = (self._views(moment) for moment in self.moments)
        for index, (state, run) in enumerate(zip(self.states, runs, strict=True)):
            state.restore([run], step)
            for place, parameter in enumerate(state.model.parameters()):
                known = state.optimizer.state.get(parameter)
                for moments, name in ((first, "exp_avg"), (second, "exp_avg_sq")):
                    moments[place][index].copy_(known[name]) if known else (
                        moments[place][index].zero_())
        self._losses = list(torch.stack([torch.stack(state.losses) for state in self.states], 1)
                            ) if self.states[0].losses else []
        self.step, self._drawn = step, None
