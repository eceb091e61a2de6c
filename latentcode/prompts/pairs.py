"""What would a language model say to the other question? Pairs of prompts.

    {"prompt": "The capital of France is", "answer": " Paris",
     "source": "The language of France is", "source_answer": " French",
     "control": "The capital in France is", "query": -1, "key": "France"}

They are prompts (`latentcode.prompts`) with a few columns more; or, without sources, prompts of
every operation with every operands, which are each other's:

    {"prompt": "the capital of Peru is", "operation": "capital", "operands": "Peru",
     "template": "the {} of {} is", "answer": " Lima", "query": -1, "key": "capital"}

These are what a template gives when it is filled with every operation and every operands. The base
has operation A and operands x. Its source in the same template has another operation B, other
operands x', or both; the control and the sources with another rest have another template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import check, check_choice
from latentcode.models.hooks import last_token, read_out_hook
from latentcode.models.transformer import HookedTransformer
from latentcode.prompts import LanguageModel, Prompts, as_language_model, as_prompts
from latentcode.prompts.answers import AnswerSets, answer_tokens
from latentcode.tasks.base import Batch, at
from latentcode.tasks.counterfactuals import (
    OTHERS,
    Counterfactuals,
    MinimalPairs,
    code_mask,
    row_mask,
    symbol_outcomes,
)

FACTORS = ("operation", "operands")
"""Columns of prompts that are a factorial."""
TEMPLATE = "template"
"""The column that names the rest of a prompt; without it there is a single one."""
NEEDED = ("source", "answer", "source_answer")
ROLES = ("first", "before", "key", "between", "query", "after")
"""What a token is to the first pair, where prompts are of several layouts."""
Among = Literal["vocabulary", "answers"]
AMONG = ("vocabulary", "answers")


class PromptCounterfactuals(Counterfactuals):
    """A prompt, and a source of as many tokens that asks something else. What comes next?

    Columns beside those of `Prompts.from_frame`:

    source          a prompt of the same number of tokens; `query` and `key` are the same tokens
    answer, source_answer  what comes after the prompt and after the source: text, the id of a
                   token, or a list of these, any of which is right
    control        a prompt of the same number of tokens with the prompt's answer
    label, source_label  the constituent that differs; default: the answers
    combination    what the bootstrap resamples as one; default: prompts of equal tokens
    split          `train` for means and erasers, `ood` to write to; default: all for both

    or, for a factorial of sources (`MinimalPairs.others`), instead of the first five

    operation, operands  what the prompt asks, and of what: every operation with every operands, of
                   every split (which has operands of its own) and in every template, whose prompts
                   are of one layout; combinations are by default those of the same operands
    template       the rest of the prompt, its wording; another one of as many tokens gives the
                   control and the sources with another `rest`. Default: a single one
    answer         what comes after the prompt

    Answers are read at the token after the last, wherever the query is: of an answer of several
    tokens at its first (`score_prompts` has whole ones). The probability of a set is the sum over
    its tokens, its logit their log-sum-exp. A batch holds
    prompts of one *layout*, as many tokens with query and key at the same places: codes of another
    prompt fit in, and nothing is padded.

    Args:
        model: A bridge or a `LanguageModel`.
        prompts: What `as_prompts` takes.
        factorial: False: of a factorial the minimal pairs alone, which differ in the operation.
        among: What counts as the model's answer: the likeliest token of the `vocabulary`, or, for
            models that rarely say either, the likelier of the two `answers` (of a factorial: the
            likeliest of the four).
        prepend_bos: As in `subject`.

    Raises:
        ConfigError: What `Prompts.from_frame` and `Prompts.tokenize` raise; names a row whose
            source, answer or label cannot be used or whose query is the first token, or the
            combination that a factorial lacks.
    """

    n_slots = 1
    exclusive = True
    symbolic = True
    n_read = 1
    least_problems = 1  # no more can be drawn than there are

    def __init__(
        self,
        model: Any,
        prompts: Prompts | pd.DataFrame | str | Path,
        *,
        factorial: bool = True,
        among: Among = "vocabulary",
        prepend_bos: bool | None = None,
    ) -> None:
        model = as_language_model(model)
        prompts = as_prompts(prompts).rendered(model)
        _check_columns(prompts.labels)
        paired = "source" in prompts.labels
        self.factorial = factorial and not paired
        tokens = prompts.tokenize(model, prepend_bos)
        self.prompts = prompts.same_tokens(tokens.ids)
        frame = self.prompts.labels
        begins = model.begins(prepend_bos)
        self.doubt = (
            f" The prompts begin {'with' if begins else 'without'} the BOS token; expected "
            f"prepend_bos={not begins} (--prepend-bos {'no' if begins else 'yes'}) if the model "
            "was trained the other way")
        names = self.prompts.names
        for i, p in np.argwhere(tokens.query == 0):
            check(False, f"pair {self.prompts.pairs[p].name!r} of {names[i]} has query 0, the "
                  "first token, before which there is none and which under a causal mask sees "
                  "nothing but itself; expected a later one")
        self.positions = np.stack([tokens.query, tokens.key], axis=1)  # [N, 2, P]
        self.ids = {"prompt": [list(ids) for ids in tokens.ids]}
        for column in [name for name in ("source", "control") if paired and name in frame]:
            self.ids[column] = [
                _matching(model, column, frame[column].iloc[i], ids, names[i], prepend_bos)
                for i, ids in enumerate(self.ids["prompt"])]
        columns = [("prompt", "answer"), *([("source", "source_answer")] if paired else [])]
        self.sets = AnswerSets(model.vocabulary)
        self.answers = np.asarray([
            [self.sets.number(answer_tokens(
                model, column, frame[column].iloc[i], frame[prompt].iloc[i], self.ids[prompt][i],
                names[i], prepend_bos)) for prompt, column in columns]
            for i in range(len(frame))], dtype=np.int64)
        self.combinations = pd.factorize(frame["combination"])[0].astype(np.int64)
        self.layouts = pd.factorize(pd.Series([
            (len(ids), where.tobytes())
            for ids, where in zip(self.ids["prompt"], self.positions, strict=True)]))[0]
        self.constituents, self.labels = self._label(model, names)
        self.grids = {} if paired else {
            split: Grid.of(frame, self.ids["prompt"], self.prompts.rows(split), self.layouts,
                           names, self.factorial)
            for split in (sorted(set(frame["split"])) if "split" in frame else ("",))}
        self.n_vocabulary, self.texts = model.vocabulary, model.texts
        several = ("pairs",) if self.positions.shape[2] > 1 else ()
        self.scopes = ("pair", *several, "row", "everything")
        self.lacks = self._lacking()
        self.answer_among(among)

    def __len__(self) -> int:
        return len(self.prompts)

    def _label(
        self, model: LanguageModel, names: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the constituents and those of each row and its source, int64 [N, 2];
        of a factorial, whose sources are rows, int64 [N, 1]."""
        frame = self.prompts.labels
        if "source" not in frame:
            numbers, operations = pd.factorize(frame["operation"])
            return tuple(map(str, operations)), numbers[:, None].astype(np.int64)
        given: np.ndarray = (frame[["label", "source_label"]].astype(str).to_numpy()
                             if "label" in frame else self.answers)
        codes, values = pd.factorize(given.ravel())
        labels = codes.reshape(-1, 2).astype(np.int64)
        alike = self.sets.overlap(torch.from_numpy(self.answers)).numpy()
        for column, same in (("answer", alike), ("label", labels[:, 0] == labels[:, 1])):
            for i in np.flatnonzero(same).tolist():
                check(False, f"{column} and source_{column} of {names[i]} are the same"
                      f"{' or begin with the same token' * (column == 'answer')}; expected "
                      "two that differ")
        return tuple(map(str, values) if "label" in frame else (
            " or ".join(model.texts(self.sets.tokens_of(value))) for value in values.tolist()
        )), labels

    def _lacking(self) -> dict[str, str]:
        lacks = {name: why for grid in self.grids.values() for name, why in grid.lacks.items()}
        frame = self.prompts.labels
        if self.factorial:
            lacks["permuted"] = "a prompt has no examples whose values could be permuted"
        elif not self.grids and "control" not in self.ids:
            lacks["control"] = ("the minimal pairs have no column control, a prompt with the same "
                                "answer")
        known = frame["split"] == "train" if "split" in frame else [True] * len(frame)
        unseen = set(range(len(self.constituents))) - set(self.labels[np.asarray(known), 0])
        if len(set(self.layouts)) > 1:
            lacks["means"] = lacks["erasers"] = (
                "prompts whose numbers of tokens, queries or keys differ have no mean code; "
                "expected a single layout")
        elif unseen:
            lacks["means"] = lacks["erasers"] = (
                f"no prompt to measure on has the label {self.constituents[min(unseen)]!r}; "
                "expected each label on some prompt, of split train if there are splits")
        return lacks

    def answer_among(self, among: str) -> None:
        """Count as the model's answer the likeliest token of the `vocabulary` or of the `answers`.
        """
        check_choice("among", among, AMONG)
        self.among = among
        n_answers = 4 if self.factorial else 2
        self.chance = 1.0 / (n_answers if among == "answers" else self.n_vocabulary)
        notes = []
        if among == "answers":
            which = "likeliest of the four" if self.factorial else "likelier of the two"
            notes.append(f"The {which} answers counts as the model's, whatever else it would "
                         "rather say.")
        if "control" in self.lacks:
            column = TEMPLATE if self.grids else "control"
            notes.append(f"Without prompts of the same answer (column {column}) there is no "
                         "control that tells a flip from damage.")
        if "means" not in self.lacks and "split" not in self.prompts.labels:
            notes.append("Means and erasers, if written, were measured on the prompts that they "
                         "were written to.")
        if self.sets.n_longer:
            notes.append(f"{self.sets.n_longer} of {self.answers.size} answers have several "
                         "tokens; the first of each is read.")
        self.notes = tuple(notes)

    def n_pairs(self, split: str) -> int:
        """Return how many pairs a split has: of a factorial, prompts with each of their sources."""
        grid = self._grid(split)
        return len(self.prompts.rows(split)) * (1 if grid is None else grid.per_base)

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n pairs of the commonest layout of a split, each at most once.

        In a factorial every prompt is drawn before one is drawn again, with another source.
        """
        every = self.prompts.rows(split)
        layouts, counts = np.unique(self.layouts[every], return_counts=True)
        rows = every[self.layouts[every] == layouts[counts.argmax()]]
        most = self.n_pairs(split) * len(rows) // len(every)
        check(n <= most, f"n is {n}; expected at most {most}, the pairs of prompts of split "
              f"{split!r} that share the commonest layout")
        order = torch.randperm(len(rows), generator=generator, device=generator.device)
        rows = rows[order.cpu().numpy()]
        return self._drawn(np.resize(rows, n), np.arange(n) // len(rows), split,
                           self._starts(split, generator), generator)

    def batches(
        self, split: str, n: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[MinimalPairs]:
        """Yield the first n pairs of a split, layout by layout, in their order."""
        rows, most = self.prompts.rows(split), self.n_pairs(split)
        check(n <= most, f"n is {n}; expected at most {most}, the pairs of prompts of split "
              f"{split!r}")
        bases, turn = np.resize(rows, n), np.arange(n) // len(rows)
        starts = self._starts(split, generator)
        for layout in pd.unique(self.layouts[bases]):
            alike = np.flatnonzero(self.layouts[bases] == layout)
            for start in range(0, len(alike), batch_size):
                some = alike[start:start + batch_size]
                yield self._drawn(bases[some], turn[some], split, starts, generator)

    def _grid(self, split: str) -> Grid | None:
        return self.grids.get(split if "split" in self.prompts.labels else "")

    def _starts(self, split: str, generator: torch.Generator) -> np.ndarray | None:
        """Draw for each prompt which of its sources in the grid is its first: int64 [N]."""
        grid = self._grid(split)
        return None if grid is None else torch.randint(
            grid.per_base, (len(self),), generator=generator, device=generator.device).cpu().numpy()

    def _drawn(
        self, bases: np.ndarray, turn: np.ndarray, split: str, starts: np.ndarray | None,
        generator: torch.Generator,
    ) -> MinimalPairs:
        """Return the pairs of bases that share a layout, with their sources (`Grid.sources`)."""
        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=torch.int64, device=generator.device)

        query, key = tensor(self.positions[bases]).unbind(1)
        combination = tensor(self.combinations[bases])

        def batch(column: str, rows: np.ndarray = bases) -> Batch:
            which = int(column == "source")
            return Batch(
                tensor([self.ids[column][row] for row in rows]),
                tensor(self.answers[rows, which])[:, None], combination,
                {"query": query, "key": key, "label": tensor(self.labels[rows, which])}, split)

        grid, base = self._grid(split), batch("prompt")
        if grid is None or starts is None:
            others = {name: batch(column) for name, column in (
                ("sources", "source"), ("control", "control")) if column in self.ids}
        else:
            others = {name: batch("prompt", rows) for name, rows in grid.sources(
                bases, starts[bases] + turn, generator).items()}
        sources = others.pop("sources")
        # Without a control the prompt stands in its place; `lacks` keeps it from being written.
        control = others.pop("control", base)
        counts = ~self.sets.overlap(torch.cat([base.targets, sources.targets], 1))
        candidates = None
        if self.factorial:
            candidates = torch.cat([each.targets for each in (
                base, sources, others["operands"], others["operation+operands"])], 1).double()
            counts = ~self.sets.overlap(candidates.long())
        label = base.info["label"]
        return MinimalPairs(base, sources, control, torch.zeros_like(label), label,
                            sources.info["label"], counts, others, candidates)

    def membership(self, batch: Batch) -> Tensor:
        """Return which label each prompt has, bool [B, 1, label]."""
        return F.one_hot(batch.info["label"], len(self.constituents)).bool()[:, None]

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes those of a pair hold, bool [B, Q, K]; of several `row` is the first's.

        elsewhere  of the token before the query, whose row is nearly as long (and its key the
                   token itself, where that does not see the key)
        """
        query, key = pairs.bases.info["query"], pairs.bases.info["key"]  # [B, P]
        if elsewhere:
            query = query - 1
            key = torch.minimum(key, query)
        n_tokens = pairs.bases.inputs.shape[1]
        if name == "row":
            return row_mask(query[:, :1], n_tokens)
        n_pairs = query.shape[1] if name == "pairs" else 1
        return torch.stack([code_mask(query[:, p], key[:, p:p + 1], n_tokens)
                            for p in range(n_pairs)]).any(0)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return the place of each token or, of several layouts, what it is to query and key."""
        if len(set(self.layouts)) == 1:
            return super().roles(pairs)
        inputs = pairs.bases.inputs
        query, key = (pairs.bases.info[name][:, :1] for name in ("query", "key"))
        place = torch.arange(inputs.shape[1], device=query.device).expand_as(inputs)
        role = torch.where(place > query, 5, torch.where(place > key, 3, 1))
        for name, where in (("first", torch.zeros_like(key)), ("key", key), ("query", query)):
            role = role.scatter(1, where, ROLES.index(name))
        return ROLES, role

    def role_labels(self, pairs: MinimalPairs) -> tuple[str, ...]:
        """Return of prompts of one layout the place and text of each token, `3 to`; where prompts
        differ the text of the first in brackets, `2 [Mary]`."""
        if len(set(self.layouts)) > 1:
            return super().role_labels(pairs)
        ids = np.array(self.ids["prompt"])
        return tuple(
            f"{place} {text.strip()}" if (ids[:, place] == ids[0, place]).all()
            else f"{place} [{text.strip()}]"
            for place, text in enumerate(self.texts(ids[0].tolist())))

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the last token, int64 [B], from the end."""
        return torch.full_like(pairs.slot, -1)

    def two_answers(self, pairs: MinimalPairs) -> tuple[Tensor, Tensor]:
        """Return the answers of the prompts and of their sources, float64 [B] each."""
        return pairs.bases.targets[:, 0].double(), pairs.sources.targets[:, 0].double()

    def reading(self, model: Any) -> AbstractContextManager[Any]:
        """While this is open a bridge computes the logits of the last token alone."""
        return (super().reading(model) if isinstance(model, HookedTransformer)
                else model.hooks(fwd_hooks=[(read_out_hook(model), last_token)]))

    def right(self, pairs: MinimalPairs, logits: Tensor, name: str) -> Tensor:
        """Return where the model says the answer, bool [B]."""
        answers = pairs.batch(name).targets
        if self.among == "vocabulary":
            return self.sets.hold(answers, logits[:, -1].argmax(-1))[:, 0]
        return self._says(pairs, logits) == answers[:, 0]

    def outputs(self, token: Tensor, logits: Tensor) -> Tensor:
        """Return the probabilities of the tokens, then of the sets of tokens that are answers:
        float64 [B, n]."""
        p = super().outputs(token, logits)
        if not self.sets.sets:
            return p
        return torch.cat([p, *(p[:, list(tokens)].sum(1, keepdim=True)
                               for tokens in self.sets.sets)], 1)

    def loss(self, answer: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of -log p of the answers, whose number targets are [B], of logits."""
        if not self.sets.sets:
            return super().loss(answer, targets)
        return -self.sets.scores(F.log_softmax(answer, -1), targets.long()[:, None]).mean()

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what the model says after the prompt, float [B] each: `symbol_outcomes`, and

        logit_difference  logit of the prompt's answer minus that of the source's, patched;
                       `logit_difference_clean`: unpatched
        moved          how far it went from the unpatched one (0) to that of the source's pass (1)
        """
        base_answer, source_answer = (batch.targets[:, 0] for batch in (pairs.bases, pairs.sources))
        both = torch.stack([base_answer, source_answer], 1)
        at_clean, at_source, at_patched = (
            scores[:, 0] - scores[:, 1] for scores in (
                self.sets.scores(logits[:, -1].float(), both) for logits in (clean, source, patched)
            ))
        # In few bits, both may be zero.
        whole = torch.where(at_clean == at_source, 1.0, at_clean - at_source)
        return {**symbol_outcomes(pairs, self._says(pairs, patched), base_answer,
                                  source_answer, clean[:, -1], patched[:, -1],
                                  self.sets.probability),
                "moved": (at_clean - at_patched) / whole,
                "logit_difference": at_patched, "logit_difference_clean": at_clean}

    def _says(self, pairs: MinimalPairs, logits: Tensor) -> Tensor:
        """Return the answer that the model says, or else the token, int64 [B]; -1 where two of
        `answers` are as likely."""
        last = logits[:, -1]
        answers = (torch.cat([pairs.bases.targets, pairs.sources.targets], 1)
                   if pairs.candidates is None else pairs.candidates.long())
        if self.among == "vocabulary":
            token = last.argmax(-1)
            held = self.sets.hold(answers, token)
            return torch.where(held.any(1), at(answers, held.long().argmax(1)), token)
        likely = self.sets.scores(last.float(), answers)
        best = likely.topk(2).values
        return torch.where(best[:, 0] > best[:, 1], at(answers, likely.argmax(1)), -1)


@dataclass(frozen=True)
class Grid:
    """The prompts of a split by template, operation and operands.

    rows       int64 [T, A, X], the number of the prompt
    cells      int64 [N, 3], of each prompt the template, operation and operands; -1 of other splits
    alike      bool [T, T], which other templates have prompts of the same layout
    factorial  whether sources differ in their operands, too
    """

    rows: np.ndarray
    cells: np.ndarray
    alike: np.ndarray
    factorial: bool

    @classmethod
    def of(
        cls, frame: pd.DataFrame, ids: Sequence[Sequence[int]], rows: np.ndarray,
        layouts: np.ndarray, names: Sequence[str], factorial: bool,
    ) -> Grid:
        """Arrange the prompts `rows` of a frame; `names` is what errors call all of them.

        ids      the tokens of each prompt of the frame
        layouts  int64 [N], equal where prompts have as many tokens with query and key in the same
                 places

        `ConfigError` names a combination that is missing or given twice, a prompt whose layout is
        another than that of its template, and a factor with a single value.
        """
        given = frame.iloc[rows].assign(**({} if TEMPLATE in frame else {TEMPLATE: ""}))
        codes, values = zip(*(pd.factorize(given[column]) for column in (TEMPLATE, *FACTORS)),
                            strict=True)
        split = f" of split {frame['split'].iloc[rows[0]]!r}" if "split" in frame else ""
        for column, levels in zip(FACTORS, values[1:], strict=True):
            check(len(levels) > 1 or (column == "operands" and not factorial), f"prompts{split} "
                  f"have the single {column} {levels[0]!r}; expected at least two")
        cells = np.full((len(frame), 3), -1, dtype=np.int64)
        cells[rows] = np.stack(codes, 1)
        grid = np.full([len(levels) for levels in values], -1, dtype=np.int64)
        grid[tuple(cells[rows].T)] = rows

        def called(cell: Iterable[int]) -> str:
            template, operation, operands = (v[i] for v, i in zip(values, cell, strict=True))
            where = f" in template {template!r}" if TEMPLATE in frame else ""
            return f"operation {operation!r} and operands {operands!r}{where}"

        first_of: dict[tuple[int, ...], int] = {}
        of_template = layouts[grid[:, 0, 0]]
        for row in rows:
            cell = cells[row]
            check(grid[tuple(cell)] == row, f"{names[row]} and {names[grid[tuple(cell)]]} both "
                  f"have {called(cell)}; expected each once{split} (a column {TEMPLATE} tells "
                  "wordings apart)")
            first = first_of.setdefault(tuple(ids[row]), row)
            check(first == row, f"{names[first]}, of {called(cells[first])}, is the same tokens as "
                  f"{names[row]}, of {called(cell)}; expected two that differ")
        for cell in np.argwhere(grid < 0):
            check(False, f"no prompt{split} has {called(cell)}; expected every operation with "
                  "every operands")
        for row in rows[layouts[rows] != of_template[cells[rows, 0]]]:
            check(False, f"{names[row]} has another number of tokens than "
                  f"{names[grid[cells[row, 0], 0, 0]]}, or its query or key in another place; "
                  f"expected prompts of one {TEMPLATE if TEMPLATE in frame else 'layout'} to "
                  "differ in words of as many tokens")
        alike = (of_template[:, None] == of_template) & ~np.eye(len(of_template), dtype=bool)
        return cls(grid, cells, alike, factorial)

    @property
    def per_base(self) -> int:
        """How many pairs of a base and its source there are for each base."""
        _, n_operations, n_operands = self.rows.shape
        return (n_operations - 1) * (n_operands - 1 if self.factorial else 1)

    @property
    def lacks(self) -> dict[str, str]:
        """The sources that no base, or not every one, has, and why."""
        lacks = {}
        if not self.alike.any(1).all():
            lacks = dict.fromkeys(
                ["control", *(name for name in OTHERS if "rest" in name)],
                f"a prompt has no other {TEMPLATE} (column {TEMPLATE}) of as many tokens, with "
                "query and key in the same places")
        if self.rows.shape[1] < 3:
            lacks["unrelated"] = "the prompts have no third operation"
        return lacks

    def sources(
        self, bases: np.ndarray, number: np.ndarray, generator: torch.Generator
    ) -> dict[str, np.ndarray]:
        """Return the rows of `sources`, `control` and `OTHERS` of bases [B], int64 [B] each, but
        what the grid lacks.

        number  int64 [B], which of the `per_base` pairs of its base each is, modulo their number
        """
        template, operation, operands = self.cells[bases].T
        _, n_operations, n_operands = self.rows.shape
        number = number % self.per_base
        target = (operation + 1 + number % (n_operations - 1)) % n_operations
        rows = {"sources": self.rows[template, target, operands]}
        if "control" not in self.lacks:
            rows["control"] = self.rows[
                _one_of(self.alike[template], generator), operation, operands]
        if not self.factorial:
            return rows
        other = (operands + 1 + number // (n_operations - 1)) % n_operands
        elsewhere = _one_of(self.alike[template], generator)
        for name in [name for name in OTHERS if name not in self.lacks]:
            if name == "unrelated":
                third = _one_of(_all_but(n_operations, operation, target), generator)
                free = _all_but(n_operands, operands, *([other] if n_operands > 2 else []))
                rows[name] = self.rows[template, third, _one_of(free, generator)]
                continue
            rows[name] = self.rows[elsewhere if "rest" in name else template,
                                   target if "operation" in name else operation,
                                   other if "operands" in name else operands]
        return rows


def _check_columns(frame: pd.DataFrame) -> None:
    """Raise `ConfigError` for prompts that are neither pairs nor a factorial."""
    paired = "source" in frame
    needed = NEEDED if paired or not {*FACTORS} & {*frame} else (*FACTORS, "answer")
    missing = [column for column in needed if column not in frame]
    check(not missing, f"minimal pairs have no column {', '.join(missing)}; expected prompt, "
          f"{', '.join(NEEDED)}, and query and key; or operation and operands in place of the "
          f"source and its answer; they have {list(frame.columns)}")
    unread = [column for column in ("source_answer", "source_label", "control")
              if column in frame and not paired]
    check(not unread, f"prompts have the columns operation and operands, and {unread} without "
          "source; expected source, too, or only the former")
    check(not paired or ("label" in frame) == ("source_label" in frame),
          "minimal pairs have only one of the columns label and source_label; expected both, or "
          "neither; a label to be decoded has another name")


def _matching(
    model: LanguageModel, column: str, text: object, ids: Sequence[int], name: str,
    prepend_bos: bool | None,
) -> list[int]:
    """Return the tokens of a prompt that goes with another, of which it has as many."""
    check(isinstance(text, str) and bool(text), f"{column} of {name} is {text!r}; expected text")
    other, _ = model.encode(str(text), prepend_bos)
    check(len(other) == len(ids), f"{column} of {name} has {len(other)} tokens "
          f"{model.texts(other)}, the prompt {len(ids)} {model.texts(ids)}; expected as many")
    check(list(other) != list(ids), f"{column} of {name} is the prompt itself; expected another")
    return list(other)


def _all_but(n: int, *taken: np.ndarray) -> np.ndarray:
    """Return which of n are none of those taken [B] each: bool [B, n]."""
    return (np.arange(n) != np.stack(taken)[..., None]).all(0)


def _one_of(free: np.ndarray, generator: torch.Generator) -> np.ndarray:
    """Draw one of those that are free, bool [B, n]: int64 [B], uniform."""
    chance = torch.rand(free.shape, generator=generator, device=generator.device).cpu().numpy()
    return np.where(free, chance, -1.0).argmax(1)
