"""SRAVEN: find the rule of every feature, and which tokens are the same feature (paper, 4).

Each of the M features of a panel runs over the G x G grid by one of eight rules. In every
column the features are permuted, by a permutation of that column and instance, and the model
has to name the M symbols of the last panel.

A feature grid holds the symbols 0..K-1 of one feature in the G x G panels. Every rule is drawn
and checked row by row, modulo K (paper, B.3):

    constant          x_c = x_0
    +1, +2, -1, -2    x_c = x_0 + c * step
    sum               x_last = x_0 + x_1 + ...
    difference        x_last = x_0 - x_1 - ...
    distribute-three  every row is an arrangement of the same G different symbols

The paper has G = 3; on other grids the rules keep their names and run over G columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, product
from math import comb, factorial
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.config import SravenConfig
from latentcode.metrics import Metric, mean_metric, share_metric
from latentcode.tasks.base import Batch, Task, explicit_split, fraction_of, split_combinations
from latentcode.tasks.distances import Distances, distances_of
from latentcode.tasks.pairs import Pair
from latentcode.tasks.sraven.render import Drawing, draw_html, draw_small, draw_text

RULES: tuple[str, ...] = (
    "constant", "+1", "+2", "-1", "-2", "sum", "difference", "distribute-three")
"""Short names; the index of a rule is its place here, as in the paper and the official code."""
STEPS: tuple[int, ...] = (0, 1, 2, -1, -2)
"""Increment per column of the first five rules; `constant` is a progression by 0."""
SUM, DIFFERENCE, DISTRIBUTE = 5, 6, 7
MOST_CONTEXTS = 2**17
"""Where there are more contexts than this, that many random ones, always the same, stand for
all of them."""


def random_permutations(
    shape: tuple[int, ...], size: int, generator: torch.Generator
) -> Tensor:
    """Return independent uniform permutations of `size` things, int64 [*shape, size]."""
    # In float32 two keys of a row collide about once per million rows, which would bias ties.
    keys = torch.rand(*shape, size, dtype=torch.float64, generator=generator,
                      device=generator.device)
    return keys.argsort(dim=-1)


def sample_features(
    rules: Tensor, n_values: int, grid_size: int, generator: torch.Generator
) -> Tensor:
    """Draw a feature grid for every rule index: int64 [...] -> [..., G, G].

    Starts and operands are uniform and independent per row. The G symbols of distribute-three
    are a uniform subset shared by the rows, in an independent uniform order per row.
    """
    shape, device = tuple(rules.shape), rules.device

    def uniform(columns: int) -> Tensor:
        return torch.randint(n_values, (*shape, grid_size, columns), generator=generator,
                             device=device)

    start, operands = uniform(1), uniform(grid_size - 1)
    symbols = random_permutations(shape, n_values, generator)[..., None, :grid_size]
    orders = random_permutations((*shape, grid_size), grid_size, generator)
    columns = torch.arange(grid_size, device=device)
    drawn = [(start + step * columns) % n_values for step in STEPS]
    drawn += [torch.cat((operands, result[..., None]), -1)
              for result in sum_and_difference(operands, n_values)]
    drawn.append(symbols.expand(*shape, grid_size, grid_size).gather(-1, orders))
    grids = drawn[0]
    for index in range(1, len(RULES)):
        grids = torch.where((rules == index)[..., None, None], drawn[index], grids)
    return grids


def sum_and_difference(operands: Tensor, n_values: int) -> tuple[Tensor, Tensor]:
    """x_0 + x_1 + ... and x_0 - x_1 - ... modulo K, both [...], of operands int64 [..., C]."""
    total = operands.sum(-1)
    return total % n_values, (2 * operands[..., 0] - total) % n_values


def rule_holds(rule: int, grids: Tensor, n_values: int) -> Tensor:
    """Return whether a rule holds in every row of feature grids: [..., G, G] -> bool [...]."""
    if rule < len(STEPS):
        return ((grids.diff(dim=-1) - STEPS[rule]) % n_values == 0).all(-1).all(-1)
    if rule == DISTRIBUTE:
        ordered = grids.sort(dim=-1).values
        different = (ordered.diff(dim=-1) != 0).all(-1).all(-1)
        return different & (ordered == ordered[..., :1, :]).all(-1).all(-1)
    expected = sum_and_difference(grids[..., :-1], n_values)[rule - SUM]
    return ((expected - grids[..., -1]) % n_values == 0).all(-1)


def complete(grids: Tensor, n_values: int) -> tuple[Tensor, Tensor]:
    """Return which rules fit all panels but the last, bool [..., 8], and the symbol that each puts
    there, int64 [..., 8], which means nothing where it does not fit.

    grids [..., G, G], whose last symbol is not looked at
    """
    context = grids[..., -1, :-1]
    answers = [(context[..., -1] + step) % n_values for step in STEPS]
    answers += sum_and_difference(context, n_values)
    # The symbol that the last row lacks, if its others are different symbols of the first row.
    answers.append(grids[..., 0, :].sum(-1) - context.sum(-1))
    fits = []
    for rule, answer in enumerate(answers):
        last_row = torch.cat((context, answer[..., None]), -1)
        completed = torch.cat((grids[..., :-1, :], last_row[..., None, :]), -2)
        fits.append(rule_holds(rule, completed, n_values))
    return torch.stack(fits, -1), torch.stack(answers, -1)


def feature_grids_per_rule(n_values: int, grid_size: int) -> tuple[int, ...]:
    """K^G (constant, progressions), K^(G (G-1)) (sum, difference), C(K, G) (G!)^G (distribute).

    How many feature grids obey each rule, 8 numbers. All are equally likely under it.
    """
    progression = n_values**grid_size
    arithmetic = n_values ** (grid_size * (grid_size - 1))
    distribute = comb(n_values, grid_size) * factorial(grid_size) ** grid_size
    return (progression,) * len(STEPS) + (arithmetic, arithmetic, distribute)


def context_pairs(config: SravenConfig) -> tuple[Pair, ...]:
    """Return a pair per row of the context: the last token of its last panel, to itself."""
    last = config.grid_size
    return tuple(Pair(f"row{row}.panel{last}->row{row}.panel{last}",
                      f"the last token of row {row}, of the context, to itself",
                      config.n_features - 1) for row in range(1, last))


class Sraven(Task):
    """out[..., j] = in[..., permutation[column, j]]: symbolic Raven matrices.

    Tokens: the panels in reading order, M one-hot tokens each; the M tokens of the last panel
    are zero vectors, and their symbols are the targets, int64 [B, M].

    `Batch.info` holds, all int64:
        rules         [B, M]        the rule of each feature
        permutations  [B, G, M]     per column, the feature that each token shows
        grid          [B, G, G, M]  the symbols as shown (row, column, token), answer included

    Raises `SplitError` when the held-out combinations leave a rule out of training.
    """

    name = "sraven"
    constituent = "rule"
    headline = "accuracy"
    config: SravenConfig

    def __init__(self, config: SravenConfig) -> None:
        self.config = config
        every = list(combinations_with_replacement(range(len(RULES)), config.n_features))
        if config.held_out is None:
            train, ood = split_combinations(
                every, len(RULES), config.ood_fraction, config.split_seed, distinct=False)
        else:
            train, ood = explicit_split(every, config.held_out)
        self.all_combinations = torch.tensor(every)
        """All multisets of M rules in lexicographic order, int64 [C(M + 7, M), M]."""
        known = torch.tensor(train)
        self._combinations = {"train": known, "test": known}
        if ood:
            self._combinations["ood"] = torch.tensor(ood)
        self._on_device: dict[tuple[str, torch.device], Tensor] = {}
        self._pairs, self._places = _named_pairs(config)

    @property
    def probe_labels(self) -> tuple[str, ...]:
        """The rule of the pair's response token."""
        return ("rule",)

    @property
    def pairs(self) -> Mapping[str, Pair]:
        """The named pairs: the paper's (last response token), then those of every token.

        `response.{j}->row{G}.panel{p}.{j}` is the token at the same place of context panel p of
        the last row, `.same` the token that shows the same feature (panels from 1, tokens from 0).
        """
        return MappingProxyType(self._pairs)

    def positions(self, names: Sequence[str], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return query and key token positions of the named pairs, each int64 [B, P]."""
        self.check_pairs(names)
        query = batch.combination.new_empty(len(batch), len(names))
        key = torch.empty_like(query)
        for column, name in enumerate(names):
            query[:, column], key[:, column], panel = self._places[name]
            if panel is not None:
                token = torch.full_like(batch.combination, self.pairs[name].token or 0)
                key[:, column] += tokens_of(batch.info["permutations"], token)[:, panel - 1]
        return query, key

    def key_sets(self, batch: Batch) -> dict[str, Tensor]:
        """Return `last_row`: the tokens of all panels of the last row, the response included."""
        n = self.config.grid_size * self.config.n_features
        last_row = torch.arange(self.config.n_tokens - n, self.config.n_tokens,
                                device=batch.inputs.device)
        return {"last_row": last_row.expand(len(batch), -1)}

    def places(self, batch: Batch) -> dict[str, Tensor]:
        """Return `context`, the tokens of the first rows; `operands`, those of the last row's given
        panels; and `response`, those of its last."""
        token = torch.arange(self.config.n_tokens, device=batch.inputs.device).expand(
            len(batch), -1)
        last_row = self.config.n_tokens - self.config.grid_size * self.config.n_features
        response = self.config.n_tokens - self.config.n_features
        return {"context": token[:, :last_row], "operands": token[:, last_row:response],
                "response": token[:, response:]}

    def row_labels(self, labels: pd.DataFrame, token: int | None) -> pd.DataFrame:
        """Return the `rule` of a response token, its symbol `answer`, and `operand_{p}`: that
        feature's symbol in context panel p of the last row."""
        operands = {f"operand_{panel}": labels[f"context_{panel}_{token}"]
                    for panel in range(1, self.config.grid_size)}
        return pd.DataFrame({"rule": labels[f"rule_{token}"], **operands,
                             "answer": labels[f"target_{token}"]})

    @property
    def splits(self) -> tuple[str, ...]:
        """`train` and `test`, and `ood` where combinations are held out."""
        return tuple(self._combinations)

    def combinations(self, split: str) -> Tensor:
        """Return the rule multisets of a split, int64 [N, M], rows sorted and in order."""
        self.check_split(split)
        return self._combinations[split]

    def why_no_split(self, split: str) -> str:
        """Return why a split is missing."""
        if split == "unknown":
            return f"not defined on SRAVEN, where all {len(RULES)} rules are trained on"
        n = len(self.all_combinations)
        most = n - -(-len(RULES) // self.config.n_features)  # every rule must occur in training
        if self.config.held_out is not None:
            return f"held_out is empty; up to {most} of {n} combinations can be held out"
        possible = (f"from {fraction_of(1, n)} to {fraction_of(most, n)} is possible" if most
                    else "no other is possible")
        return (f"ood_fraction {self.config.ood_fraction} holds out none of {n} combinations; "
                f"{possible}")

    def sample(self, split: str, n: int, generator: torch.Generator) -> Batch:
        """Draw n instances of uniformly drawn combinations on the device of `generator`.

        `train` and `test` share their combinations; the generator tells them apart.
        """
        config, device = self.config, generator.device
        n_features, grid_size = config.n_features, config.grid_size
        combinations = self._combinations_on(split, device)
        combination = torch.randint(len(combinations), (n,), generator=generator, device=device)
        rules = combinations[combination]
        if config.rule_order == "random":
            rules = rules.gather(1, random_permutations((n,), n_features, generator))
        features = sample_features(rules, config.n_values, grid_size, generator)
        if config.permuted:
            permutations = random_permutations((n, grid_size), n_features, generator)
        else:
            permutations = torch.arange(n_features, device=device).repeat(n, grid_size, 1)
        grid = permute_features(features.movedim(1, -1), permutations)
        info = {"rules": rules, "permutations": permutations, "grid": grid}
        return Batch(tokenize(grid, config.n_values), grid[:, -1, -1], combination, info, split,
                     one_hot=True)

    def _combinations_on(self, split: str, device: torch.device) -> Tensor:
        """Return the combinations of a split, copied to a device once and for all."""
        key = (split, device)
        if key not in self._on_device:
            self._on_device[key] = self.combinations(split).to(device)
        return self._on_device[key]

    @property
    def n_read(self) -> int:
        """M: the response."""
        return self.config.n_features

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """-mean_j log softmax(logits_bj)[target_bj] over the M response tokens, at least float32.

        logits [B, T, K], targets [B, M] -> [B]
        """
        response = logits[:, -self.config.n_features:]
        response = response.to(torch.promote_types(response.dtype, torch.float32))
        return F.cross_entropy(response.flatten(0, 1), targets.flatten(),
                               reduction="none").view_as(targets).mean(1)

    def measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return per instance, each [B]: `loss`, `accuracy` (1 where all M symbols are right,
        else 0), `feature_accuracy` (share of the M symbols that are right)."""
        right = logits[:, -self.config.n_features:].argmax(-1) == batch.targets
        return {"loss": self.losses(logits, batch.targets),
                "accuracy": right.all(1).float(), "feature_accuracy": right.float().mean(1)}

    def constituent_measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return per response token, each [B, M]: the `rules` that govern it, whether it is
        `right`, whether it is `swapped`: a sum answered x_0 - x_1 or a difference x_0 + x_1."""
        answers, rules = logits[:, -self.config.n_features:].argmax(-1), rules_shown(batch)
        last_row = aligned(batch.info["grid"], batch.info["permutations"])[:, -1]  # [B, G, M]
        summed, difference = sum_and_difference(
            last_row[:, :-1].movedim(1, -1), self.config.n_values)
        return {"rules": rules, "right": answers == batch.targets,
                "swapped": answers == torch.where(rules == SUM, difference, summed)}

    def summarize(self, measures: Mapping[str, np.ndarray]) -> dict[str, Metric]:
        """Return the means of `measures` over instances and, of tokens, these shares.

        feature_accuracy[rule]           of those that the rule governs, how many are right
        wrong_as_difference[sum]         of the wrong ones under sum, how many are the difference
        wrong_as_sum[difference]         of the wrong ones under difference, how many are the sum

        Their n counts tokens. A rule that does not occur has none of them; where it occurs and
        no token is wrong, the shares of the wrong ones are NaN. A model that cannot tell sum from
        difference, and answers either with one of the two at random, has both of these at 1.
        """
        metrics = {name: mean_metric(values) for name, values in measures.items()
                   if values.ndim == 1}
        if "rules" not in measures:
            return metrics
        rules = measures["rules"]
        right, swapped = (measures[name].astype(bool) for name in ("right", "swapped"))
        for rule in np.unique(rules).astype(int):
            of_rule = rules == rule
            metrics[f"feature_accuracy[{RULES[rule]}]"] = share_metric(right & of_rule, of_rule)
        for rule, other in ((SUM, DIFFERENCE), (DIFFERENCE, SUM)):
            of_rule = rules == rule
            if of_rule.any():
                metrics[f"wrong_as_{RULES[other]}[{RULES[rule]}]"] = share_metric(
                    swapped & ~right & of_rule, ~right & of_rule)
        return metrics

    def labels(self, batch: Batch) -> pd.DataFrame:
        """Return one row per instance, with these columns.

        rule_{j}         name of the rule that governs response token j
        target_{j}       the symbol that answers it
        context_{p}_{j}  symbol of that same feature in context panel p of the last row
        combination      the rules in rising order, such as "constant, +1, sum, sum"
        split            the split of the batch
        """
        names = np.array(RULES)
        permutations = batch.info["permutations"]
        rules = rules_shown(batch).cpu().numpy()
        last_row = aligned(batch.info["grid"], permutations)[:, -1].cpu().numpy()
        columns: dict[str, np.ndarray] = {}
        for token in range(self.config.n_features):
            columns[f"rule_{token}"] = names[rules[:, token]]
            columns[f"target_{token}"] = last_row[:, -1, token]
            for panel in range(1, self.config.grid_size):
                columns[f"context_{panel}_{token}"] = last_row[:, panel - 1, token]
        written = np.array([self.combination_symbols(c)
                            for c in self.combinations(batch.split).tolist()])
        columns["combination"] = written[batch.combination.cpu().numpy()]
        return pd.DataFrame(columns).assign(split=batch.split)

    @property
    def token_names(self) -> tuple[str, ...]:
        """The panel and the place of each token; the last panel is the answer."""
        panels = self.config.grid_size ** 2
        return tuple(f"panel {panel}, token {token}" + (" (answer)" if panel == panels else "")
                     for panel in range(1, panels + 1) for token in range(self.config.n_features))

    @staticmethod
    def combination_symbols(rules: Iterable[int]) -> str:
        """Return a combination as the labels name it, such as "constant, +1, sum, sum"."""
        return ", ".join(RULES[rule] for rule in rules)

    def render(self, batch: Batch, index: int, format: str = "text") -> str:
        """Return the grid of instance `index`, its rules and its answer, as text or HTML."""
        self.check_render(batch, index, format)
        drawing = self.drawing(batch, index)
        return draw_text(drawing) if format == "text" else draw_html(drawing)

    def sketch(self, batch: Batch, index: int) -> str:
        """Return the grid of instance `index` in small, the panel to be answered empty."""
        self.check_render(batch, index, "html")
        return draw_small(self.drawing(batch, index))

    def drawing(self, batch: Batch, index: int) -> Drawing:
        """Return instance `index` as `draw_small` takes it."""
        info = {name: values[index].cpu() for name, values in batch.info.items()}
        permutations = info["permutations"]
        shown = aligned(info["grid"][None], permutations[None])[0]
        return Drawing(
            grid=info["grid"].tolist(), features=permutations.tolist(),
            rules=[RULES[r] for r in info["rules"][permutations[-1]].tolist()],
            aligned=shown.movedim(-1, 0).tolist())


def rules_shown(batch: Batch) -> Tensor:
    """Return the rule that governs each response token, int64 [B, M]."""
    return batch.info["rules"].gather(1, batch.info["permutations"][:, -1])


def tokens_of(permutations: Tensor, slot: Tensor) -> Tensor:
    """Return, per column, the token that shows the feature of response token `slot` [B]: [B, G]."""
    feature = permutations[:, -1].gather(1, slot[:, None])
    return (permutations == feature[:, None]).long().argmax(-1)


def permute_features(grid: Tensor, permutations: Tensor) -> Tensor:
    """Return out[b, row, col, j] = grid[b, row, col, permutations[b, col, j]].

    grid [B, G, G, M], permutations [B, G, M] -> [B, G, G, M].
    """
    return grid.gather(-1, permutations[:, None].expand_as(grid))


def aligned(grid: Tensor, permutations: Tensor) -> Tensor:
    """Undo the permutations up to the order of the response: what lies at j is one feature.

    out[b, row, col, j] is the symbol of the feature that response token j shows.
    grid [B, G, G, M] as shown, permutations [B, G, M] -> [B, G, G, M].
    """
    tokens = permutations.argsort(-1).gather(-1, permutations[:, -1:].expand_as(permutations))
    return permute_features(grid, tokens)


def tokenize(grid: Tensor, n_values: int) -> Tensor:
    """Return the one-hot tokens of grids [B, G, G, M], the last panel blank: [B, G*G*M, K]."""
    symbols = torch.arange(n_values, device=grid.device)
    tokens = (grid.flatten(1)[..., None] == symbols).float()
    tokens[:, -grid.shape[-1]:] = 0.0
    return tokens


def _named_pairs(
    config: SravenConfig
) -> tuple[dict[str, Pair], dict[str, tuple[int, int, int | None]]]:
    """Return the pairs, the paper's first, and where each reads: query, key, and panel.

    Where there is a panel of the last row, the key is its first token, beside which the token of
    the same feature stands where the permutations of an instance put it.
    """
    m, size = config.n_features, config.grid_size
    row, last, response = f"row{size}", m - 1, (size**2 - 1) * m
    panels = [(panel, (size * (size - 1) + panel - 1) * m) for panel in range(1, size)]
    pairs: dict[str, Pair] = {}
    places: dict[str, tuple[int, int, int | None]] = {}

    def add(pair: Pair, query: int, key: int, panel: int | None = None) -> None:
        pairs[pair.name], places[pair.name] = pair, (query, key, panel)

    at_last = response + last
    add(Pair("response->response", "the last response token to itself (the paper's pair)", last),
        at_last, at_last)
    for panel, first in panels:
        add(Pair(f"response->{row}.panel{panel}", "the last response token to the last token of "
                 f"panel {panel} of the last row", last), at_last, first + last)
    for token in range(m):
        query, subject, place = f"response.{token}", f"response token {token}", response + token
        add(Pair(f"{query}->{query}", f"{subject} to itself", token), place, place)
        for panel, first in panels:
            add(Pair(f"{query}->{row}.panel{panel}.{token}", f"{subject} to token {token} of "
                     f"panel {panel} of the last row", token), place, first + token)
        for panel, first in panels:
            add(Pair(f"{query}->{row}.panel{panel}.same", f"{subject} to the token of panel "
                     f"{panel} of the last row that shows the same feature", token),
                place, first, panel)
    for number, pair in enumerate(context_pairs(config), 1):
        add(pair, number * size * m - 1, number * size * m - 1)
    return pairs, places


def sraven_distances(task: Sraven, label: str, split: str) -> Distances:
    """Return the distances of rules (`rule`, `rules`) or of the combinations of a split.

    functional, circular  see `answer_distances`; of combinations, of the best matching of rules
    edit         of combinations, how many rules only one of them has
    """
    functional, circular = answer_distances(task.config.n_values, task.config.grid_size)
    return distances_of(label, task.constituent, RULES,
                        {"functional": functional, "circular": circular},
                        task.combinations(split).numpy(), task.combination_symbols)


def answer_distances(n_values: int, grid_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often, and by how many steps on the circle of K symbols, the answers of two rules
    differ over all contexts of a last row, each equally likely: [8, 8] each.

    The symbol that completes distribute-three is any of those that the context lacks, all equally
    likely; contexts that repeat a symbol, which it does not allow, do not count for it.
    """
    if n_values ** (grid_size - 1) <= MOST_CONTEXTS:
        context = np.array(list(product(range(n_values), repeat=grid_size - 1)))
    else:
        context = np.random.default_rng(0).integers(
            n_values, size=(MOST_CONTEXTS, grid_size - 1))
    summed = context.sum(axis=1)
    symbols = [(context[:, -1] + step) % n_values for step in STEPS]
    symbols += [summed % n_values, (2 * context[:, 0] - summed) % n_values]
    answers = np.zeros((len(RULES), len(context), n_values))  # P(answer | context, rule)
    for rule, symbol in enumerate(symbols):
        answers[rule, np.arange(len(context)), symbol] = 1.0
    absent = (context[:, :, None] != np.arange(n_values)).all(axis=1)
    answers[DISTRIBUTE] = absent / absent.sum(axis=1, keepdims=True)
    valid = np.ones((len(RULES), len(context)), dtype=bool)
    valid[DISTRIBUTE] = absent.sum(axis=1) == n_values - (grid_size - 1)
    steps = np.abs(np.subtract.outer(np.arange(n_values), np.arange(n_values)))
    steps = np.minimum(steps, n_values - steps).astype(np.float64)
    functional, circular = np.zeros((2, len(RULES), len(RULES)))
    for a, b in combinations(range(len(RULES)), 2):
        both = valid[a] & valid[b]
        together = np.einsum("nu,nv->uv", answers[a, both], answers[b, both]) / both.sum()
        functional[a, b] = functional[b, a] = 1.0 - np.trace(together)
        circular[a, b] = circular[b, a] = (together * steps).sum()
    return functional, circular
