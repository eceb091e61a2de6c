"""What does a model say when a head is ablated? Each head alone, beside a control.

    mean      z_h <- the mean of z_h over the tokens of some texts
    resample  z_h <- z_h of the same position of another text

Both are the field's words (Wang et al., arXiv 2211.00593, section 2; Chan et al., causal scrubbing,
2022). What a head writes, z_h W_O^h, changes by D_t = (z'_t - z_t) W_O^h at token t. The control
changes the stream x_t that attention leaves by as much, and makes it as long:

    (D_t . e_t) e_t + |D_t - (D_t . e_t) e_t| u_t / |u_t|,    e_t = x_t / |x_t|

where u_t is (z'_t - z_t) R without its part along x_t, and the entries of R [d, D] are independent
normal numbers. So it is a head that sees the same and whose output matrix is random: one that does
no more than the control does what any change of that size does. The part along x_t is the same in
both because norms take out the length of the stream: what removes a part of it turns it further
than what adds as much.

Of each layer and head there are K = 8 matrices R_k (`DIRECTIONS`), each for an eighth of the texts.
On the texts of R_k the control has the effect c_k, the head itself e_k, and d_k = e_k - c_k. With
the means c and d over all texts, another random matrix has, with 95 %, an effect and a difference
from the control in

    c +- t_(K-1) sd_k(c_k) sqrt(1 + 1/K)        0 +- t_(K-1) sd_k(d_k) sqrt(1 + 1/K)

(a prediction interval). `control_low`, `control_high` are the first; the interval of the contrast
is d +- the second, so that it is beyond 0 where the head does more, or less, than a head with a
random output matrix would. Both are a little wide: c_k and d_k differ by their texts, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import ProbeError, check, check_choice, check_count
from latentcode.models.layers import attention_layers
from latentcode.models.read_out import look
from latentcode.models.replay import CleanPass, Write, clean_pass, unshared, z_hook
from latentcode.probes.common.contrasts import contrast_columns
from latentcode.probes.heads.batches import TextBatch, in_parts
from latentcode.probes.heads.scores import Draws, Scores, effect_rows
from latentcode.probes.heads.tables import EFFECTS, GROUPS
from latentcode.progress import Progress, reported
from latentcode.prompts import LanguageModel
from latentcode.seeds import checked_seed, make_generator

KINDS = ("mean", "resample")
QUANTITIES: Mapping[str, str] = {
    "loss": "what comes next is told worse by, in nats",
    "kl": "KL(clean || ablated) of the next token, in nats",
    "changed": "share of tokens after which another token is the likeliest",
    "right_lost": "share of tokens after which the right one is the likeliest, before minus after"}
"""What is measured, as means over the tokens that are read."""
CONTROL = "random direction"
DIRECTIONS = 8
"""Random output matrices of each head, among which the groups of texts are divided."""
CONTRASTS = contrast_columns("patch", "layer", "head")


class Before:
    """What a clean pass says at the tokens that are read, for others to be compared with."""

    def __init__(self, logits: Float[Tensor, "R V"], targets: Int[Tensor, " R"]) -> None:
        log_p = F.log_softmax(logits.float(), -1)
        self.p = log_p.exp()
        self.minus_entropy = torch.linalg.vecdot(self.p, log_p)
        self.targets = targets[:, None]
        self.loss = -log_p.gather(1, self.targets)[:, 0]
        self.says = logits.argmax(-1)

    def changes(self, logits: Float[Tensor, "N R V"]) -> Float[np.ndarray, "Q N R"]:
        """Return the `QUANTITIES` of every pass and token."""
        found = [self.compared(one) for one in logits]
        return np.asarray(torch.stack(found, 1).double().cpu().numpy())

    def compared(self, logits: Float[Tensor, "R V"]) -> Float[Tensor, "Q R"]:
        """Return the `QUANTITIES` of each token."""
        logits = logits.float()
        norm, says = logits.logsumexp(-1), logits.argmax(-1)
        loss = norm - logits.gather(1, self.targets)[:, 0]
        kl = self.minus_entropy - torch.linalg.vecdot(self.p, logits) + norm
        right = [(said == self.targets[:, 0]).float() for said in (self.says, says)]
        return torch.stack([loss - self.loss, kl.clamp_min(0.0),  # below 0 by rounding alone
                            (says != self.says).float(), right[0] - right[1]])


def mean_z(
    asked: LanguageModel, batches: Iterable[TextBatch], n_reference: int = 64
) -> dict[int, Tensor]:
    """Return by layer the mean of what each head puts out [H, d], over all tokens of some texts.

    n_reference  the first texts, at most

    `ProbeError` where there are none.
    """
    check_count("n_reference", n_reference)
    model, n = asked.model, 0
    sums: dict[int, Tensor] = {}
    texts: set[int] = set()
    for batch in batches:
        texts |= set(sorted({*batch.text.tolist()} - texts)[:n_reference - len(texts)])
        one = batch.of_texts(texts).to(next(model.parameters()).device)
        if not len(one):
            break
        is_text = (torch.arange(one.tokens.shape[1], device=one.tokens.device)
                   < one.lengths[:, None])
        n += int(is_text.sum())

        def add(z: Tensor, hook: object, *, layer: int, is_text: Tensor = is_text) -> None:
            total = z[is_text].double().sum(0)
            sums[layer] = total if layer not in sums else sums[layer] + total

        look(model, one.tokens, ((z_hook(layer), partial(add, layer=layer))
                                 for layer in attention_layers(model)), one.padding)
    check(n > 0, "there are no texts to take a mean over", ProbeError)
    dtype = next(model.parameters()).dtype
    return {layer: (sums[layer] / n).to(dtype) for layer in sorted(sums)}


class HeadEffects:
    """The effects of ablating every head, summed up batch by batch.

    means    of `mean_z`; None without the kind `mean`
    kinds    some of `KINDS`
    control  whether the control is computed, too: as many passes again
    n_read   tokens of each text that are read, drawn at random; None: all that can be
    seed     of what is drawn: these tokens, other texts, directions of the control
    heads    (layer, head) of those that are ablated; None: all

    Each head of each batch is a pass through the layers above it (`latentcode.models.replay`),
    where the model allows it; else through all of them, which `settings` says.

    For `resample` the other text is drawn from the same batch, among those that are as long or
    longer; where there is none it is the longest other one, and only tokens that it has as well
    are read. A text that is alone in its batch is left out.

    `sums` [kind, patch or control, quantity, L, H, group], L all layers, and `counts` [kind, group]
    are of the parts of batches that were read wholly, also after an interruption.
    """

    def __init__(
        self, asked: LanguageModel, means: Mapping[int, Tensor] | None = None, *,
        kinds: Sequence[str] = KINDS, control: bool = True, n_read: int | None = 64, seed: int = 0,
        heads: Collection[tuple[int, int]] | None = None,
    ) -> None:
        for kind in kinds:
            check_choice("kind", kind, KINDS)
        check(len(kinds) > 0, "kinds are empty; expected at least one")
        check("mean" not in kinds or means is not None, "kind 'mean' without means; expected "
              "those of mean_z")
        if n_read is not None:
            check_count("n_read", n_read)
        self.model, self.means, self.kinds = asked.model, means, tuple(dict.fromkeys(kinds))
        self.control, self.n_read, self.seed = control, n_read, checked_seed(seed)
        self.whole_passes = unshared(asked.model)
        config = asked.model.cfg
        self.n_heads = config.n_heads
        self.heads = {layer: [head for head in range(self.n_heads)
                              if heads is None or (layer, head) in heads]
                      for layer in attention_layers(asked.model)}
        self.layers = [layer for layer, some in self.heads.items() if some]
        self.sums = np.zeros((len(self.kinds), 2, len(QUANTITIES), config.n_layers,
                              self.n_heads, GROUPS))
        self.counts = np.zeros((len(self.kinds), GROUPS))

    @property
    def settings(self) -> dict[str, Any]:
        """What results say of how it was measured."""
        return {"kinds": list(self.kinds), "n_read": self.n_read, "seed": self.seed,
                "passes": f"whole: {self.whole_passes}" if self.whole_passes else
                "layers below shared"}

    def read(self, batch: TextBatch, progress: Progress | None = None) -> None:
        """Add the effects on a batch.

        progress  called with (done, total)
        """
        parts = in_parts(batch, self.model, self.n_read, self.seed)
        total = len(parts) * len(self.layers)
        for number, part in enumerate(parts):
            self._read(part, None if progress is None else _from(
                progress, number * len(self.layers), total))

    def _read(self, batch: TextBatch, progress: Progress | None) -> None:
        clean = clean_pass(self.model, batch.tokens, batch.read, padding=batch.padding,
                           shared=not self.whole_passes)
        before = Before(clean.logits, batch.targets[batch.read])
        donor = donors(batch, self.seed)
        longest = torch.where(donor >= 0, batch.lengths[donor], 0)
        row, token = batch.read.nonzero(as_tuple=True)
        group = batch.group[row.cpu().numpy()]
        # Of each kind, which tokens count.
        counted = {"mean": np.ones(len(group), dtype=bool),
                   "resample": (token < longest[row]).cpu().numpy()}
        sums = np.zeros_like(self.sums)
        for done, layer in enumerate(self.layers, 1):
            jobs = list(self._jobs(clean, batch, donor, layer))
            room = clean.room
            for begin in range(0, len(jobs), room):
                part = jobs[begin:begin + room]
                changes = before.changes(clean.after([[write()] for _, write in part]))
                for n, ((k, of, head), _) in enumerate(part):
                    which = counted[self.kinds[k]]
                    for q, values in enumerate(changes[:, n]):
                        np.add.at(sums[k, of, q, layer, head], group[which], values[which])
            if progress is not None:
                progress(done, len(self.layers))
        self.sums += sums
        for k, kind in enumerate(self.kinds):
            np.add.at(self.counts[k], group[counted[kind]], 1.0)

    def _jobs(
        self, clean: CleanPass, batch: TextBatch, donor: Tensor, layer: int
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        """Yield what is written in each pass of a layer: kind, patch or control, head."""
        z = clean.z[layer]
        matrices = (random_matrices(z, self.model.cfg.d_model, layer, self.seed)
                    if self.control else None)
        direction = torch.as_tensor(directions(self.seed)[batch.group], device=z.device)

        def write(kind: str, head: int) -> Write:
            if kind == "mean":
                assert self.means is not None
                return Write(layer, (head,), self.means[layer][head].to(z))
            return Write(layer, (head,), z[:, :, head:head + 1][donor])

        def elsewhere(kind: str, head: int) -> Write:
            assert matrices is not None
            return in_random_direction(clean, write(kind, head), matrices[direction, head])

        for k, kind in enumerate(self.kinds):
            for head in self.heads[layer]:
                yield (k, 0, head), partial(write, kind, head)
                if self.control:
                    yield (k, 1, head), partial(elsewhere, kind, head)

    def tables(
        self, n_bootstrap: int = 1000, seed: int | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the tables of effects (`EFFECTS`) and of contrasts with the control (`CONTRASTS`).

        value, control  means over the tokens that were read, of the `QUANTITIES`
        low, high   95 % interval of the effect, which resamples whole texts
        control_low, control_high  between which one random matrix lies with 95 %
        contrasts   effect minus control, over the same tokens, with the interval above

        `ProbeError` for a kind of which no token could be read.
        """
        rows: list[dict[str, Any]] = []
        contrasts: list[dict[str, Any]] = []
        which = directions(self.seed)
        for k, kind in enumerate(self.kinds):
            found = np.flatnonzero(self.counts[k])
            check(len(found) > 0, f"no token could be read of kind {kind!r}; expected texts of at "
                  "least two tokens" + (", and at least two of them in a batch"
                                        if kind == "resample" else ""), ProbeError)
            sizes = self.counts[k, found][:, None, None, None]
            for layer in self.layers:
                heads = self.heads[layer]
                of = self.sums[k, :, :, layer, heads][..., found]  # [H, 2, Q, G]
                sums = np.moveaxis(of, (0, -1), (-1, 0))  # [G, 2, Q, H]
                n = int(sizes.sum())
                scores = Scores.of(sums[:, 0], sizes[:, 0], n, n_bootstrap,
                                   self.seed if seed is None else seed)
                drawn = Draws.of_parts(sums, sizes, n, which[found])
                more, above = effect_rows(
                    kind, layer, heads, list(QUANTITIES), scores, against=CONTROL,
                    beside=(drawn[0], drawn[1]) if self.control else None)
                rows += more
                contrasts += above
        return (pd.DataFrame(rows, columns=list(EFFECTS)),
                pd.DataFrame(contrasts, columns=list(CONTRASTS)))


def effects(
    asked: LanguageModel, batches: Iterable[TextBatch], *, kinds: Sequence[str] = KINDS,
    control: bool = True, n_read: int | None = 64, n_reference: int = 64, n_bootstrap: int = 1000,
    seed: int = 0, progress: Progress | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """What does a model say when a head is ablated? Effects, contrasts with the control, settings.

    batches      can be gone through several times
    n_reference  texts whose mean is put in
    progress     called with (batches done, batches in all)

    Other arguments, and what is raised, are those of `HeadEffects`; the tables are its `tables`.
    """
    means = mean_z(asked, batches, n_reference) if "mean" in kinds else None
    found = HeadEffects(asked, means, kinds=kinds, control=control, n_read=n_read, seed=seed)
    total = sum(1 for _ in batches)
    for batch in reported(batches, total, progress):
        found.read(batch)
    return *found.tables(n_bootstrap), {**found.settings, "n_reference": n_reference}


def donors(batch: TextBatch, seed: int) -> Int[Tensor, " B"]:
    """Return of each row the row of another text that is put in; -1 where there is none."""
    lengths, texts = batch.lengths.tolist(), batch.text.tolist()
    found = []
    for text, length in zip(texts, lengths, strict=True):
        others = [row for row, other in enumerate(texts) if other != text]
        long = [row for row in others if lengths[row] >= length]
        if not long and others:
            long = [max(others, key=lambda row: lengths[row])]
        generator = make_generator(seed, f"another text than {text}")
        found.append(long[int(torch.randint(len(long), (), generator=generator))] if long else -1)
    return torch.tensor(found, device=batch.tokens.device)


def directions(seed: int) -> Int[np.ndarray, " G"]:
    """Return which of the random matrices each group of texts is given.

    Eight groups that follow each other get each once, in a random order: texts may come in turn.
    """
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(DIRECTIONS) for _ in range(GROUPS // DIRECTIONS)])


def random_matrices(
    z: Float[Tensor, "B T H d"], d_model: int, layer: int, seed: int
) -> Float[Tensor, "K H d D"]:
    """Return the random matrices R_k of the heads of a layer, the same for all batches."""
    return torch.randn((DIRECTIONS, *z.shape[2:], d_model),
                       generator=make_generator(seed, f"directions of layer {layer}")).to(z)


def in_random_direction(
    clean: CleanPass, write: Write, matrix: Float[Tensor, "B d D"]
) -> Write:
    """Return the control of a write of one head: as much, in a direction that R gives."""
    assert write.z is not None
    change, stream = clean.moved(write), clean.stream(write.layer)
    difference = (write.z - clean.z[write.layer][:, :, list(write.heads)])[:, :, 0]
    along = F.normalize(stream, dim=-1)
    random = difference @ matrix
    kept = _along(change, along)
    across = (change - kept).norm(dim=-1, keepdim=True)
    return Write(write.layer, added=kept + across * F.normalize(
        random - _along(random, along), dim=-1))


def _along(x: Tensor, unit: Tensor) -> Tensor:
    """Return the part of vectors along unit vectors."""
    return (x * unit).sum(-1, keepdim=True) * unit


def _from(progress: Progress, begun: int, total: int) -> Progress:
    return lambda done, _: progress(begun + done, total)


__all__ = [
    "CONTRASTS",
    "CONTROL",
    "DIRECTIONS",
    "EFFECTS",
    "KINDS",
    "QUANTITIES",
    "Before",
    "HeadEffects",
    "directions",
    "donors",
    "effects",
    "in_random_direction",
    "mean_z",
]
