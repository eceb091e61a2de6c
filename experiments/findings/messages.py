"""Where does the operation of a SRAVEN problem travel? Messages, values and codes, patched.

A *message* is what key k contributes to the output of query q in one layer: code and value
together, in HYLA the generated network applied to the key's value,

    z_qh = sum_k m_qkh,    m_qkh = a_hqk v_kh  or  a_hqk phi(sum_h' a_h'qk v_kh')    (HYLA),

so that z with the messages of some keys exchanged is z - sum_k m_qkh + sum_k m'_qkh, where m' are
those of the *source*. Patches, sources, controls and what decides are in `messages.yaml`; the rate
of each outcome stands beside its ceiling, that of exchanging the inputs of the context themselves.

    python -m latentcode.experiments.findings.messages RUN [RUN ...] --out FOLDER

writes `messages.csv`: a row per run, direction (from sum, to sum, both), patch, source and
outcome, with 95 % intervals (bootstrap over combinations) and paired differences from each control:
a source with a third rule, and two with the base's own rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import tyro
from torch import Tensor

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.models.config import kind_of
from latentcode.models.patched.passes import CleanPass, clean_pass, computed
from latentcode.models.patched.sites import Place
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions import Problem
from latentcode.tasks.counterfactuals import MinimalPairs, all_differ
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals
from latentcode.tasks.sraven.task import RULES, SUM

OUTCOMES = ("base", "operation", "operands", "answer", "other")
THIRD_RULE = "unrelated"
SAME_RULE = ("operands", "operands+rest")
CONTROLS = (THIRD_RULE, *SAME_RULE)
SOURCES = ("operation+operands", "operation+operands+rest", *CONTROLS)
DRAWN, MOST_DRAWS = 512, 40
"""Problems that are drawn at a time, and how often at most."""


PATCHES = {
    "messages, context to the feature's last row": ("message", (0, 1), "own row", "context"),
    "messages, context to other features' last row": (
        "message", (0, 1), "other rows", "context"),
    "values of the context": ("value", (0, 1), "all", "context"),
    "codes of the response": ("code", (1, 2, 3), "response", "all"),
    "codes of the context": ("code", (0, 1, 2, 3), "context", "all"),
}
"""Site, layers, queries and keys of each."""
ALIGNED = "messages, context to the feature's last row"
"""The patch that is also taken from sources whose features are permuted otherwise."""
OTHERWISE = f"{ALIGNED}, other permutations"
CEILING = "inputs of the context"
COMBINATION = "combination", ""


def tokens(name: str, task: SravenCounterfactuals, pairs: MinimalPairs) -> Tensor:
    """Return a set of tokens, bool [B, T].

    `context`: rows 1 and 2. Of the last row, `own row` are the three tokens of the feature that is
    asked about, wherever the permutations put them, `other rows` the rest; `response` is the token
    that is answered.
    """
    context = task.place("context", pairs)
    if name in ("context", "all"):
        return context if name == "context" else torch.ones_like(context)
    names, role = task.roles(pairs)
    own = torch.tensor([role_name.endswith(" own") for role_name in names])[role]
    if name == "response":
        return own & task.place("response", pairs)
    return ~context & (own if name == "own row" else ~own)


def patch(
    task: SravenCounterfactuals, site: str, layers: tuple[int, ...], queries: str, keys: str
) -> lc.Patch:
    """Return the interchange of messages or codes of queries, or of values of keys."""

    def cells(pairs: MinimalPairs) -> Tensor:  # bool [B, Q, K]
        return tokens(queries, task, pairs)[:, :, None] & tokens(keys, task, pairs)[:, None]

    return lc.Patch("interchange", cells, layers, site)


def patched_logits(
    clean: CleanPass, task: SravenCounterfactuals, pairs: MinimalPairs, patch: lc.Patch,
    source: Mapping[Place, Tensor],
) -> Tensor:
    """Return the logits of bases with the source's activations put in, by place, of a patch."""
    problem = Problem(pairs, {"sources": source}, patch.cells(task, pairs), torch.Generator())
    return clean.patched(patch.edits(clean.model, problem))


def aligned_activations(
    model: Any, task: SravenCounterfactuals, inputs: Tensor, places: tuple[Place, ...],
    generator: torch.Generator,
) -> dict[Place, Tensor]:
    """Return messages, codes or values of inputs [B, T, ...] whose features are permuted otherwise.

    In each column of the matrix the tokens of a panel change places, the same in all rows; what is
    computed is given where the tokens of the same feature and column were before.
    """
    grid, n_features = task.task.config.grid_size, task.task.config.n_features
    order = torch.rand((len(inputs), grid, n_features), generator=generator).argsort(-1)
    panel = n_features * torch.arange(grid * grid)  # its first token
    moved = (panel[:, None] + order[:, torch.arange(grid * grid) % grid]).flatten(1)  # [B, T]
    rows, back = torch.arange(len(inputs))[:, None], moved.argsort(-1)
    of_pair = rows[..., None], back[:, :, None], back[:, None]
    _, kept = computed(model, inputs[rows, moved], places)
    return {place: x[rows, back] if place[0] == "value" else x[of_pair] if place[0] == "message"
            else x.movedim(1, -1)[of_pair].movedim(-1, 1) for place, x in kept.items()}


def directions(task: SravenCounterfactuals) -> dict[str, SravenCounterfactuals]:
    """Return the pairs of rules that natural problems have: away from sum, and to it.

    Some last rows could come from sum and from another rule, none from two others: there the source
    would be a problem that breaks its own rule.
    """
    return {"from sum": task.between(base_labels=(RULES[SUM],)),
            "to sum": task.between(source_labels=(RULES[SUM],))}


def answers(task: SravenCounterfactuals, pairs: MinimalPairs, logits: Tensor) -> Tensor:
    """Return the symbol that a model answers, int64 [B]."""
    return task.outputs(task.answer_token(pairs), logits).argmax(-1)


def known(model: Any, task: SravenCounterfactuals, pairs: MinimalPairs) -> MinimalPairs:
    """Return the bases that count: four different answers, all of which the model gives."""
    assert pairs.candidates is not None
    pairs = pairs[pairs.counts & all_differ(pairs.candidates)]
    assert pairs.candidates is not None
    problems = ("bases", "sources", "operands", "operation+operands")
    right = [answers(task, pairs, model(pairs.batch(name).inputs)) == pairs.candidates[:, column]
             for column, name in enumerate(problems)]
    return pairs[torch.stack(right).all(0)]


def outcomes(task: SravenCounterfactuals, pairs: MinimalPairs, logits: Tensor) -> Tensor:
    """Return which of `OUTCOMES` each answer is, int64 [B]."""
    assert pairs.candidates is not None
    same = answers(task, pairs, logits)[:, None] == pairs.candidates
    return torch.where(same.any(1), same.long().argmax(1), len(OUTCOMES) - 1)


def patched(
    model: Any, task: SravenCounterfactuals, pairs: MinimalPairs, generator: torch.Generator
) -> pd.DataFrame:
    """Patch some bases: a row per base, a column per patch and source, with the outcome."""
    inputs, columns = pairs.bases.inputs, {}
    context = tokens("context", task, pairs)[:, :, None]
    patches = {name: patch(task, *where) for name, where in PATCHES.items()}
    places = tuple(dict.fromkeys(place for each in patches.values() for place in each.places))
    clean = clean_pass(model, inputs, places)
    for source in SOURCES:
        theirs = pairs.batch(source).inputs
        _, kept = computed(model, theirs, places)
        otherwise = aligned_activations(model, task, theirs, patches[ALIGNED].places, generator)
        for name, each in patches.items():
            columns[name, source] = patched_logits(clean, task, pairs, each, kept)
        columns[OTHERWISE, source] = patched_logits(clean, task, pairs, patches[ALIGNED], otherwise)
        columns[CEILING, source] = model(torch.where(context, theirs, inputs))
    table = pd.DataFrame({place: outcomes(task, pairs, logits).numpy()
                          for place, logits in columns.items()})
    table[COMBINATION] = pairs.bases.combination.numpy()
    return table


@torch.no_grad()
def measure(run: lc.Run, n: int, seed: int) -> pd.DataFrame:
    """Patch n bases of each direction in a run: rates with intervals and differences."""
    model, tables = run.load_model().eval(), {}
    task = lc.make_counterfactuals(lc.make_task(run.config.task))
    assert isinstance(task, SravenCounterfactuals)
    for direction, pairs_of in directions(task).items():
        parts: list[pd.DataFrame] = []
        generator = make_generator(seed, f"messages {direction}", "cpu")
        orders = make_generator(seed, f"permutations {direction}", "cpu")
        for _ in range(MOST_DRAWS):
            pairs = known(model, task, pairs_of.sample("ood", DRAWN, generator))
            if len(pairs):
                parts.append(patched(model, task, pairs, orders))
            if sum(map(len, parts)) >= n:
                break
        tables[direction] = pd.concat(parts, ignore_index=True)[:n]
    tables["both"] = pd.concat(tables.values(), ignore_index=True)
    return pd.DataFrame([
        {"run": run.name, "kind": kind_of(run.config.model), "pairs": direction, **row}
        for direction, table in tables.items() for row in rates(table, seed)])


def rates(table: pd.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rate of each outcome, and its paired differences from those of the controls."""
    combination = table[COMBINATION].to_numpy()
    for patch in (*PATCHES, OTHERWISE, CEILING):
        for source in SOURCES:
            for number, outcome in enumerate(OUTCOMES):
                rate, *others = ((table[patch, name] == number).to_numpy(float)
                                 for name in (source, *CONTROLS))
                row = {"patch": patch, "source": source, "outcome": outcome, "n": len(table)}
                for name, rates_of_bases in (("", rate), *(
                        (f" above {control}", rate - other)
                        for control, other in zip(CONTROLS, others, strict=True))):
                    mean, low, high, _ = mean_and_interval(
                        rates_of_bases, combination, 1_000, seed)
                    row |= {f"value{name}": float(mean), f"low{name}": float(low),
                            f"high{name}": float(high)}
                yield row


def main(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional], /,
    out: Path = Path("results/messages"), n: int = 400, seed: int = 0,
) -> None:
    """Measure runs and write the table.

    Args:
        runs: folders of runs on SRAVEN.
        out: folder for the table.
        n: bases that count in each direction.
        seed: of the problems and the bootstrap.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables: list[pd.DataFrame] = []
    for path in runs:
        tables.append(measure(lc.load_run(path), n, seed))
        pd.concat(tables).to_csv(out / "messages.csv", index=False, float_format="%.4f")
        print(f"measured {len(tables)} of {len(runs)} runs", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
