"""Fuzzy logic: functions in disjunctive normal form, learned in context (paper, section 3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.config import LogicConfig
from latentcode.devices import make_generator
from latentcode.errors import check
from latentcode.metrics import Metric, mean_metric, ratio_metric
from latentcode.tasks.base import (
    SPLITS,
    Batch,
    Task,
    explicit_split,
    fraction_of,
    split_combinations,
)
from latentcode.tasks.distances import Distances, check_number, distances_of
from latentcode.tasks.pairs import Pair

NOT, AND, OR = "\N{NOT SIGN}", " \N{LOGICAL AND} ", " \N{LOGICAL OR} "
QUERY = "query"
"""Name of the last token in the names of pairs."""
SMALLEST_BASE_MSE = torch.finfo(torch.float32).eps ** 2
"""A variance of the targets below this is zero as far as float32 can tell."""
N_INPUTS = 4_096
"""Inputs, always the same, on which functions are compared: their mean difference is known to
about 0.003."""


def literals(signs: Tensor, variables: Tensor) -> Tensor:
    """x_l where the sign is 1 and 1 - x_l where it is 0 (Zadeh's negation; paper, Eq. 8).

    signs [..., L] bool and variables [..., L] in [0, 1] are broadcast against each other.
    """
    return torch.where(signs, variables, 1.0 - variables)


def evaluate(signs: Tensor, variables: Tensor) -> Tensor:
    """f(x) = max_k min_l literal_kl(x): fuzzy logic with Zadeh's operators (paper, Eqs. 8, 9).

    signs [B, K, L] bool are the terms of B functions, variables [B, T, L] their inputs; the
    result [B, T] has the dtype of the variables. For inputs of 0 and 1 it is Boolean logic.
    """
    terms = literals(signs[:, :, None], variables[:, None]).amin(dim=-1)  # [B, K, T]
    return terms.amax(dim=1)


class FuzzyLogic(Task):
    """f(x) = OR of K terms, each an AND of all L variables, some negated (paper, Eq. 9).

    There are 2^L terms, numbered as the binary numbers that their signs spell (1: the variable
    as it is, 0: negated). A combination is a set of K different terms. The last
    `int(unknown_fraction * 2^L)` terms are never trained on: `train`, `test` and `ood` combine
    the known terms, `unknown` only the others, and mixtures of both are not used.

    A token is (x_1, ..., x_L, f(x)); the last one, the query, has 0 in place of f(x), which is
    to be predicted there. Raises `SplitError` when the fraction held out leaves too few
    combinations for every known term to occur in training.
    """

    name = "logic"
    constituent = "term"
    headline = "r2"
    config: LogicConfig

    def __init__(self, config: LogicConfig) -> None:
        self.config = config
        n_all, n_known = 2**config.n_variables, config.n_known_terms
        known = list(itertools.combinations(range(n_known), config.n_terms))
        if config.held_out is None:
            train, ood = split_combinations(
                known, n_known, config.ood_fraction, config.split_seed, distinct=True)
        else:
            train, ood = explicit_split(known, config.held_out)
        unknown = itertools.combinations(range(n_known, n_all), config.n_terms)
        tables = {name: torch.tensor(list(rows), dtype=torch.int64).view(-1, config.n_terms)
                  for name, rows in (("train", train), ("ood", ood), ("unknown", unknown))}
        tables["test"] = tables["train"]
        self._splits = tuple(s for s in SPLITS if len(tables[s]))
        # The second number keeps this stream apart from that of the split, which has the same
        # seed. The query is drawn first, so that it does not depend on the number of examples.
        fixed = torch.from_numpy(np.random.default_rng([config.split_seed, 1]).random(
            (config.n_examples, config.n_variables), dtype=np.float32))
        tables["fixed_query"], tables["fixed_context"] = fixed[:1], fixed[1:]
        tables["signs"] = torch.tensor(
            list(itertools.product([False, True], repeat=config.n_variables)))
        self._tables_on = {torch.device("cpu"): tables}

    @property
    def probe_config(self) -> LogicConfig:
        """One context that all instances share, while the query varies (paper, 3.2)."""
        return replace(self.config, inputs="fixed_context")

    @property
    def probe_labels(self) -> tuple[str, ...]:
        """Each term, and which terms occur."""
        return (*(f"term_{k}" for k in range(1, self.config.n_terms + 1)), "terms")

    @cached_property
    def pairs(self) -> Mapping[str, Pair]:
        """`query->query`, the paper's, and `query->example.{i}` for every example."""
        itself = Pair(f"{QUERY}->{QUERY}", "The query attending to itself (paper, 3.2).")
        examples = (Pair(f"{QUERY}->example.{i}",
                         f"The query attending to example {i} of its context.")
                    for i in range(self.config.n_examples - 1))
        return {pair.name: pair for pair in (itself, *examples)}

    def positions(self, names: Sequence[str], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return query and key token positions of the named pairs, each int64 [B, P]."""
        self.check_pairs(names)
        last = self.config.n_examples - 1
        keys = [last if key == QUERY else int(key.removeprefix("example."))
                for key in (name.split("->")[1] for name in names)]
        key = torch.tensor(keys, dtype=torch.int64, device=batch.inputs.device)
        key = key.expand(len(batch), -1)
        return torch.full_like(key, last), key

    def key_sets(self, batch: Batch) -> dict[str, Tensor]:
        """Return `examples`: every token but the query."""
        examples = torch.arange(self.config.n_examples - 1, device=batch.inputs.device)
        return {"examples": examples.expand(len(batch), -1)}

    def places(self, batch: Batch) -> dict[str, Tensor]:
        """Return `context`, the examples, and `response`, the query, which holds its operand."""
        token = torch.arange(self.config.n_examples, device=batch.inputs.device)
        return {"context": token[:-1].expand(len(batch), -1),
                "response": token[-1:].expand(len(batch), -1)}

    def row_labels(self, labels: pd.DataFrame, token: int | None) -> pd.DataFrame:
        """Return `term_1` .. `term_K`, the `operand`, and f at the query, the `answer`.

        The operand is the query with its inputs rounded to 0 and 1, written as the term that is
        truest there: of 2^L.
        """
        inputs = labels[[f"query_x{v + 1}" for v in range(self.config.n_variables)]].to_numpy()
        corner = (inputs > 0.5) @ (2 ** np.arange(self.config.n_variables)[::-1])
        names = np.array(self._symbols, dtype=object)
        terms = {name: labels[name] for name in self.probe_labels if name in labels}
        return pd.DataFrame({**terms, "operand": names[corner], "answer": labels["target"]})

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that this configuration offers."""
        return self._splits

    def combinations(self, split: str) -> Tensor:
        """Return the sets of terms of a split, int64 [N, K], each row sorted."""
        self.check_split(split)
        return self._tables(torch.device("cpu"))[split]

    @property
    def signs(self) -> Tensor:
        """The terms, bool [2^L, L]: True for a variable as it is, False for a negated one."""
        return self._tables(torch.device("cpu"))["signs"]

    def signs_on(self, device: torch.device) -> Tensor:
        """Return `signs` on a device, copied there once."""
        return self._tables(device)["signs"]

    def sample(self, split: str, n: int, generator: torch.Generator) -> Batch:
        """Draw n instances, uniform over the combinations of the split, inputs from U[0, 1).

        With the same generator state the three kinds of `inputs` give the same combinations
        and differ only in what they hold fixed.
        """
        self.check_split(split)
        device, config = generator.device, self.config
        tables = self._tables(device)
        combination = torch.randint(
            len(tables[split]), (n,), generator=generator, device=device)
        variables = torch.rand(
            n, config.n_examples, config.n_variables, generator=generator, device=device)
        if config.inputs == "fixed_context":
            variables[:, :-1] = tables["fixed_context"]
        elif config.inputs == "fixed_query":
            variables[:, -1:] = tables["fixed_query"]
        return self.build(split, combination, variables)

    def build(
        self, split: str, combination: Tensor, variables: Tensor, terms: Tensor | None = None
    ) -> Batch:
        """Return the instances that given functions and inputs make.

        combination [B] are rows of `combinations(split)`, variables [B, T, L] the inputs in
        [0, 1], the query last; terms [B, K] those of other functions, of any split. Info: `terms`
        [B, K], the sorted indices of the terms, and `base_mse` [B], the biased variance of all T
        targets, the query's included (official).
        """
        self.check_split(split)
        tables = self._tables(variables.device)
        wanted = (len(combination), self.config.n_examples, self.config.n_variables)
        check(variables.shape == wanted,
              f"variables have shape {tuple(variables.shape)}; expected {wanted}")
        if terms is None:
            terms = tables[split][combination]
        values = evaluate(tables["signs"][terms], variables)  # [B, T]
        deviation = values - values.mean(dim=1, keepdim=True)
        shown = torch.nn.functional.pad(values[:, :-1], (0, 1))  # the query's target is masked
        inputs = torch.cat([variables, shown[..., None]], dim=-1)  # [B, T, L + 1]
        return Batch(inputs, values[:, -1:], combination,
                     {"terms": terms, "base_mse": deviation.square().mean(dim=1)}, split)

    @property
    def n_read(self) -> int:
        """1: the query."""
        return 1

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(logits_b,T - y_b)^2: the squared error at the query of each instance, [B]."""
        return (logits[:, -1, 0] - targets[:, 0]).square()

    def measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """r2 = 1 - loss / base_mse per instance, with both of its parts; each [B].

        Where the targets of an instance hardly differ, base_mse is tiny and r2 very negative:
        the distribution has a heavy tail (below four tokens even its mean may be infinite), and
        `r2_pooled` of `summarize` is the steadier number. A base_mse that is zero in float32
        counts as `SMALLEST_BASE_MSE`.
        """
        loss, base = self.losses(logits, batch.targets), batch.info["base_mse"]
        return {"loss": loss, "r2": 1.0 - loss / base.clamp_min(SMALLEST_BASE_MSE),
                "base_mse": base}

    def constituent_measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the `terms` [B, K] of each instance."""
        return {"terms": batch.info["terms"]}

    def summarize(self, measures: Mapping[str, np.ndarray]) -> dict[str, Metric]:
        """Return `r2`, the mean over instances (official, primary), `r2_pooled`, which is
        1 - sum(loss) / sum(base_mse), and `loss`, with standard errors.

        `r2[x1 ∧ ¬x2 ...]` is the mean over the instances whose function has that term, for every
        term that occurs.
        """
        metrics = {"loss": mean_metric(measures["loss"]), "r2": mean_metric(measures["r2"]),
                   "r2_pooled": ratio_metric(measures["loss"], measures["base_mse"])}
        if "terms" in measures:
            for term in np.unique(measures["terms"]):
                has = (measures["terms"] == term).any(axis=1)
                name = f"r2[{self.term_symbols(int(term))}]"
                metrics[name] = mean_metric(measures["r2"][has])
        return metrics

    def labels(self, batch: Batch) -> pd.DataFrame:
        """Return what is known of each instance, one row each.

        term_1 .. term_K   the terms in symbols, in rising order of their indices
        combination        the indices of the terms; function: the whole function in symbols
        target             f at the query, which is at query_x1 .. query_xL
        active_term        1 .. K: the term whose value f takes at the query (the largest)
        active_variable    1 .. L: the variable whose literal that term takes (the smallest);
                           the target is a function of this input alone
        split              the split that the batch was drawn from
        """
        batch = batch.to("cpu")
        terms, query = batch.info["terms"], batch.inputs[:, -1, :-1]
        values = literals(self.signs[terms], query[:, None]).numpy()  # [B, K, L]
        active_term = values.min(axis=2).argmax(axis=1)
        active_variable = values[np.arange(len(batch)), active_term].argmin(axis=1)
        names = np.array(self._symbols, dtype=object)[terms.numpy()]
        # Text is made once per combination, not per instance.
        used, row = torch.unique(terms, dim=0, return_inverse=True)
        combinations, functions = (np.array([text(c) for c in used.tolist()], dtype=object)
                                   for text in (self.combination_symbols, self.function_symbols))
        return pd.DataFrame({
            **{f"term_{k + 1}": names[:, k] for k in range(self.config.n_terms)},
            "combination": combinations[row.numpy()],
            "function": functions[row.numpy()],
            "target": batch.targets[:, 0].numpy(),
            **{f"query_x{v + 1}": query[:, v].numpy() for v in range(self.config.n_variables)},
            "active_term": active_term + 1,
            "active_variable": active_variable + 1,
            "split": np.full(len(batch), batch.split, dtype=object),
        })

    def term_symbols(self, term: int) -> str:
        """Return a term as people write it, such as `x1 ∧ ¬x2`."""
        return self._symbols[term]

    def function_symbols(self, terms: Iterable[int]) -> str:
        """Return a function as people write it: its terms in brackets, joined by OR."""
        return OR.join(f"({self.term_symbols(t)})" for t in terms)

    @staticmethod
    def combination_symbols(terms: Iterable[int]) -> str:
        """Return a combination as the labels name it: the indices of its terms."""
        return OR.join(map(str, terms))

    def render(self, batch: Batch, index: int, format: Literal["text", "html"] = "text") -> str:
        """Return the function in symbols, its examples as a table, the query and its answer."""
        self.check_render(batch, index, format)
        instance = batch[index:index + 1].to("cpu")
        label = self.labels(instance).iloc[0]
        names = [f"x{v + 1}" for v in range(self.config.n_variables)]
        term, variable = int(label.active_term) - 1, int(label.active_variable) - 1
        sign = bool(self.signs[instance.info["terms"][0, term], variable])
        title = f"f({', '.join(names)}) = {label.function}"
        source = f"split {label.split}, terms {label.combination}"
        answer = (f"answer: f(query) = {label.target:.4f} = {_literal(variable, sign)}, from term "
                  f"{term + 1}: {label[f'term_{term + 1}']}")
        header = ["", *names, "f"]
        rows = [[f"example {i}", *(f"{x:.4f}" for x in token)]
                for i, token in enumerate(instance.inputs[0].tolist())]
        rows[-1] = [QUERY, *rows[-1][1:-1], "?"]
        if format == "html":
            return html_table(title, source, header, rows, answer)
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
                 for row in (header, *rows)]
        return "\n".join([title, source, "", *lines, "", answer])

    def sketch(self, batch: Batch, index: int) -> str:
        """Return the function, and the values of every token as the shades of a strip."""
        self.check_render(batch, index, "html")
        function = self.function_symbols(batch.info["terms"][index].tolist())
        names = [*(f"x{v + 1}" for v in range(self.config.n_variables)), "f"]
        return strip(f"f = {function}", names, batch.inputs[index].tolist())

    @property
    def token_names(self) -> tuple[str, ...]:
        """The examples, and the query, where the answer is given."""
        return (*(f"example {t}" for t in range(self.config.n_examples - 1)), "query (answer)")

    def why_no_split(self, split: str) -> str:
        """Return why this configuration lacks one of `SPLITS`, and what would be possible."""
        config = self.config
        n_known, n_all, n_terms = config.n_known_terms, 2**config.n_variables, config.n_terms
        if split == "ood":
            n_combinations = math.comb(n_known, n_terms)
            if n_combinations == math.ceil(n_known / n_terms):
                return f"training needs every combination of the {n_known} known terms"
            if config.held_out is not None:
                return "held_out names no combination"
            return (f"ood_fraction {config.ood_fraction} of {n_combinations} combinations holds "
                    f"out none; the smallest fraction that holds out one is "
                    f"{fraction_of(1, n_combinations)}")
        possible = (f"{n_all} terms are too few for known and unknown combinations"
                    if n_all < 2 * n_terms else f"from {n_terms / n_all} on there are enough")
        return (f"it combines {n_terms} unknown terms, and unknown_fraction "
                f"{config.unknown_fraction} makes {n_all - n_known} of {n_all} unknown; {possible}")

    def _tables(self, device: torch.device) -> dict[str, Tensor]:
        """Return the constants on a device; they are copied there once, so that sampling never
        waits for the host."""
        if device not in self._tables_on:
            source = self._tables_on[torch.device("cpu")]
            self._tables_on[device] = {name: t.to(device) for name, t in source.items()}
        return self._tables_on[device]

    @cached_property
    def _symbols(self) -> list[str]:
        return [AND.join(_literal(v, sign) for v, sign in enumerate(signs))
                for signs in self.signs.tolist()]


def _literal(variable: int, sign: bool) -> str:
    return f"{'' if sign else NOT}x{variable + 1}"


def html_table(
    title: str, source: str, header: list[str], rows: list[list[str]], answer: str
) -> str:
    """Return a row per token, the last one the query, as self-contained HTML."""
    # Half-transparent grey and amber on an inherited text colour read well on any background.
    border = "border-bottom:1px solid rgba(128,128,128,0.35);padding:2px 10px;text-align:right"
    marked = "background:rgba(255,170,0,0.22);font-weight:600"

    def row(cells: list[str], tag: str, attributes: str = "") -> str:
        inner = "".join(f'<{tag} style="{border}">{escape(c)}</{tag}>' for c in cells)
        return f"<tr{attributes}>{inner}</tr>"

    body = "".join(
        row(cells, "td", f' data-token="{i}" style="{marked if cells is rows[-1] else ""}"')
        for i, cells in enumerate(rows))
    return (
        '<div style="color:inherit;font-variant-numeric:tabular-nums">'
        f'<div style="font-weight:600">{escape(title)}</div>'
        f'<div style="opacity:0.75;margin-bottom:6px">{escape(source)}</div>'
        '<table style="border-collapse:collapse;color:inherit;background:transparent">'
        f"<thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>"
        f'<div style="margin-top:6px">{escape(answer)}</div></div>')


def strip(title: str, names: Sequence[str], tokens: Sequence[Sequence[float]]) -> str:
    """Return a column per token and a row per input, about 240 px wide; the fuller, the larger.

    names   of the inputs, each from 0 to 1; the last is f
    tokens  their values [T, L + 1]; the last token is the query, whose f is asked for
    """
    query, last = len(tokens) - 1, len(names) - 1

    def cell(token: int, part: int) -> str:
        if token == query and part == last:
            return '<div style="height:12px;text-align:center">?</div>'
        value, colour = tokens[token][part], "213,94,0" if part == last else "0,114,178"
        return (f'<div style="height:12px;margin-bottom:1px;background:'
                f'linear-gradient(to top,rgba({colour},.75) {value:.0%},'
                f'rgba(128,128,128,.15) {value:.0%})"></div>')

    def shown(token: int) -> str:
        values = [f"{name} = {value:.2f}"
                  for name, value in zip(names, tokens[token], strict=True)]
        return escape(", ".join([*values[:-1], "f = ?"] if token == query else values))

    columns = "".join(
        f'<div data-token="{token}" title="{shown(token)}" '
        f'style="flex:{"1.6" if token == query else "1"} 1 0;max-width:24px;'
        f'{"outline:1px dashed currentColor;margin-left:3px" if token == query else ""}">'
        f"{''.join(cell(token, part) for part in range(len(names)))}</div>"
        for token in range(len(tokens)))
    rows = "".join(f'<div style="height:13px">{escape(name)}</div>' for name in names)
    return ('<div style="font:10px/12px system-ui,sans-serif;color:inherit;width:250px">'
            f'<div style="font-size:11px;margin-bottom:4px">{escape(title)}</div>'
            f'<div style="display:flex;gap:1px"><div style="width:16px">{rows}</div>{columns}</div>'
            "</div>")


def logic_distances(task: FuzzyLogic, label: str, split: str) -> Distances:
    """Return the distances of terms (`term_1`, `terms`) or of the functions of a split.

    literals     how many variables one term negates and the other does not; of functions, that of
                 the best matching of their terms
    functional   mean |f(x) - f'(x)| over inputs x uniform in [0, 1)
    edit         of functions, how many terms only one of them has
    """
    from scipy.spatial.distance import cdist

    signs = task.signs
    check_number(len(signs), "terms")

    def functional(functions: np.ndarray) -> dict[str, np.ndarray]:
        inputs = torch.rand(N_INPUTS, signs.shape[1], dtype=torch.float64,
                            generator=make_generator(0, "inputs that compare functions"))
        values = torch.cat([evaluate(signs[some], inputs.expand(len(some), -1, -1))
                            for some in torch.from_numpy(functions).split(64)])  # [N, inputs]
        return {"functional": cdist(values, values, "cityblock") / N_INPUTS}

    hamming = cdist(signs.double(), signs.double(), "cityblock")
    return distances_of(label, task.constituent, [task.term_symbols(t) for t in range(len(signs))],
                        {"literals": hamming}, task.combinations(split).numpy(),
                        task.combination_symbols, functional)
