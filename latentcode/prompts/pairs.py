"""What would a language model say to the other question? Pairs of prompts.

    {"prompt": "The capital of France is", "answer": " Paris",
     "source": "The language of France is", "source_answer": " French",
     "control": "The capital in France is", "query": -1, "key": "France"}

They are prompts (`latentcode.prompts`) with a few columns more; or, without sources, prompts of
every operation with every operands (`latentcode.prompts.factorial`), which are each other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import check, check_choice
from latentcode.models.pretrained import is_causal
from latentcode.prompts import LanguageModel, Prompts, as_language_model, as_prompts
from latentcode.prompts.factorial import FACTORS, Grid
from latentcode.prompts.outcomes import AMONG, Among, PromptOutcomes
from latentcode.prompts.prompts import row_name
from latentcode.prompts.tokens import matching, next_token
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import MinimalPairs, all_differ

NEEDED = ("source", "answer", "source_answer")


class PromptCounterfactuals(PromptOutcomes):
    """A prompt, and a source of as many tokens that asks something else. What comes next?

    Columns beside those of `Prompts.from_frame`:

    source          a prompt of the same number of tokens; `query` and `key` are the same tokens
    answer, source_answer  what comes after the prompt and after the source: text that is one token
                   there, or the id of a token
    control        a prompt of the same number of tokens with the prompt's answer, the control;
                   without this column `control` cannot be written
    label, source_label  the constituent that differs; default: the answers
    combination    what the bootstrap resamples as one; default: prompts of equal tokens
    split          `train` for means and erasers, `ood` to write to; default: all for both

    or, for a factorial of sources (`MinimalPairs.others`), instead of `source`, `source_answer`,
    `control` and labels

    operation, operands  what the prompt asks, and of what: every operation with every operands, of
                   every split (which has operands of its own) and in every template. The prompts
                   of a template are of one layout; its sources are found among them
    template       the rest of the prompt, its wording; with another one of as many tokens there are
                   a control, which has the same operation and operands, and the sources with
                   another `rest`. Default: a single one, and `lacks` says what there is not
    combination    default: the operands

    factorial  False: of a factorial the minimal pairs alone, which differ in the operation
    among  what counts as the model's answer: the likeliest token of the `vocabulary`, or, for
           models that rarely say either, the likelier of the two `answers` (of a factorial: the
           likeliest of the four)
    prepend_bos  as in `subject`

    Answers are read after the last token, wherever the query is. A batch holds prompts of one
    *layout*, as many tokens with query and key at the same places: codes of another prompt fit
    in, and nothing is padded.

    Raises what `Prompts.from_frame` and `Prompts.tokenize` raise, `ConfigError` that names a row
    whose source, answer or label cannot be used, or the combination that a factorial lacks, and a
    query that is the first token.
    """

    def __init__(
        self,
        model: Any,
        prompts: Prompts | pd.DataFrame | str | Path,
        *,
        factorial: bool = True,
        among: Among = "vocabulary",
        prepend_bos: bool | None = None,
    ) -> None:
        check_choice("among", among, AMONG)
        self.prompts = as_prompts(prompts)
        frame = self.prompts.labels
        self._check_columns()
        paired = "source" in frame
        self.factorial = factorial and not paired
        asked = as_language_model(model)
        tokens = self.prompts.tokenize(asked, prepend_bos)
        self.prompts = self.prompts.same_tokens(tokens.ids)
        frame = self.prompts.labels
        self.begins = asked.begins(prepend_bos)
        self.doubt = (
            f" The prompts begin {'with' if self.begins else 'without'} the BOS token;"
            f" expected prepend_bos={not self.begins} (--prepend-bos "
            f"{'no' if self.begins else 'yes'}) if the model was trained the other way")
        names = [row_name(i, text) for i, text in enumerate(frame["prompt"])]
        if is_causal(asked.model):
            tokens.check_causal(self.prompts)
        for i, p in np.argwhere(tokens.query == 0):
            check(False, f"pair {self.prompts.pairs[p].name!r} of {names[i]} has query 0, the "
                  "first token, before which there is none and which under a causal mask sees "
                  "nothing but itself; expected a later one")
        self.positions = np.stack([tokens.query, tokens.key], axis=1)  # [N, 2, P]
        self.ids = {"prompt": [list(ids) for ids in tokens.ids]}
        for column in [name for name in ("source", "control") if paired and name in frame]:
            self.ids[column] = [
                matching(asked, column, frame[column].iloc[i], ids, names[i], prepend_bos)
                for i, ids in enumerate(self.ids["prompt"])]
        columns = [("prompt", "answer"), *([("source", "source_answer")] if paired else [])]
        self.answers = np.asarray([
            [next_token(asked, column, frame[column].iloc[i], frame[prompt].iloc[i],
                        self.ids[prompt][i], names[i], prepend_bos) for prompt, column in columns]
            for i in range(len(frame))], dtype=np.int64)
        self.combinations = pd.factorize(frame["combination"])[0].astype(np.int64)
        keys = [(len(ids), where.tobytes())
                for ids, where in zip(self.ids["prompt"], self.positions, strict=True)]
        self.layouts = pd.factorize(pd.Series(keys))[0]
        self.constituents, self.labels = self._label(asked, names)
        self.grids = {} if paired else {
            split: Grid.of(frame, self.ids["prompt"], self.rows(split), self.layouts, names,
                           self.factorial)
            for split in (sorted(set(frame["split"])) if "split" in frame else ("",))}
        self.n_vocabulary = asked.vocabulary
        self.scopes = ("pair", "pairs", "row", "everything")
        if self.positions.shape[2] == 1:
            self.scopes = ("pair", "row", "everything")
        self.lacks = self._lacking()
        self.answer_among(among)

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, split: str) -> np.ndarray:
        """Return which prompts a split holds (`Prompts.rows`)."""
        return self.prompts.rows(split)

    def n_pairs(self, split: str) -> int:
        """Return how many pairs a split has: as many as prompts or, in a factorial, as many as
        there are prompts with each of their sources."""
        rows, grid = self.rows(split), self._grid(split)
        return len(rows) * (1 if grid is None else grid.per_base)

    def answer_among(self, among: str) -> None:
        """Count as the model's answer the likeliest token of the `vocabulary` or of the `answers`.
        """
        check_choice("among", among, AMONG)
        self.among = among
        n_answers = 4 if self.factorial else 2
        self.chance = 1.0 / (n_answers if among == "answers" else self.n_vocabulary)
        self.notes = self._notes()

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n pairs of the commonest layout of a split, each at most once.

        In a factorial every prompt is drawn before one is drawn again, with another source.
        """
        rows = self.rows(split)
        layouts, counts = np.unique(self.layouts[rows], return_counts=True)
        rows = rows[self.layouts[rows] == layouts[counts.argmax()]]
        most = self.n_pairs(split) * len(rows) // len(self.rows(split))
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
        rows, most = self.rows(split), self.n_pairs(split)
        check(n <= most, f"n is {n}; expected at most {most}, the pairs of prompts of split "
              f"{split!r}")
        bases, turn = np.resize(rows, n), np.arange(n) // len(rows)
        starts = self._starts(split, generator)
        for one in pd.unique(self.layouts[bases]):
            alike = np.flatnonzero(self.layouts[bases] == one)
            for start in range(0, len(alike), batch_size):
                some = alike[start:start + batch_size]
                yield self._drawn(bases[some], turn[some], split, starts, generator)

    def _check_columns(self) -> None:
        """Raise `ConfigError` for prompts that are neither pairs nor a factorial."""
        frame = self.prompts.labels
        needed = NEEDED if "source" in frame or not {*FACTORS} & {*frame} else (*FACTORS, "answer")
        missing = [column for column in needed if column not in frame]
        check(not missing, f"minimal pairs have no column {', '.join(missing)}; expected prompt, "
              f"{', '.join(NEEDED)}, and query and key; or operation and operands in place of the "
              f"source and its answer; they have {list(frame.columns)}")
        unread = [] if "source" in frame else [
            column for column in ("source_answer", "source_label", "control") if column in frame]
        check(not unread, f"prompts have the columns operation and operands, and {unread} without "
              "source; expected source, too, or only the former, whose sources are prompts of "
              "their own")
        check("source" not in frame or ("label" in frame) == ("source_label" in frame),
              "minimal pairs have only one of the columns label and source_label; expected both, "
              "the constituent of the prompt and that of its source, or neither; a label to be "
              "decoded has another name")

    def _grid(self, split: str) -> Grid | None:
        return self.grids.get(split if "split" in self.prompts.labels else "")

    def _starts(self, split: str, generator: torch.Generator) -> np.ndarray | None:
        grid = self._grid(split)
        return None if grid is None else grid.starts(generator)

    def _drawn(
        self, bases: np.ndarray, turn: np.ndarray, split: str, starts: np.ndarray | None,
        generator: torch.Generator,
    ) -> MinimalPairs:
        """Return the pairs of bases that share a layout, with their sources (`Grid.sources`)."""
        grid, device = self._grid(split), generator.device

        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=torch.int64, device=device)

        query, key = tensor(self.positions[bases]).unbind(1)
        combination = tensor(self.combinations[bases])

        def batch(column: str, rows: np.ndarray = bases) -> Batch:
            which = int(column == "source")
            return Batch(
                tensor([self.ids[column][row] for row in rows]),
                tensor(self.answers[rows, which])[:, None], combination,
                {"query": query, "key": key, "label": tensor(self.labels[rows, which])}, split)

        own = batch("prompt")
        if grid is None or starts is None:
            found = {name: batch(column) for name, column in (
                ("sources", "source"), ("control", "control")) if column in self.ids}
        else:
            found = {name: batch("prompt", rows) for name, rows in grid.sources(
                bases, turn, starts, generator).items()}
        sources = found.pop("sources")
        # Without a control the prompt stands in its place; `lacks` keeps it from being written.
        control = found.pop("control", own)
        base_label, source_label = (of.info["label"] for of in (own, sources))
        zero = torch.zeros_like(base_label)
        counts = own.targets[:, 0] != sources.targets[:, 0]
        candidates = None
        if self.factorial:
            candidates = torch.cat([of.targets for of in (
                own, sources, found["operands"], found["operation+operands"])], 1).double()
            counts = all_differ(candidates)
        return MinimalPairs(own, sources, control, zero, base_label, source_label, counts,
                            found, candidates)

    def _label(
        self, model: LanguageModel, names: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the constituents and those of each row and its source, int64 [N, 2];
        of a factorial, whose sources are rows, int64 [N, 1].

        `ConfigError` names a row that does not differ from its source.
        """
        frame = self.prompts.labels
        if "source" not in frame:
            numbers, operations = pd.factorize(frame["operation"])
            return tuple(map(str, operations)), numbers[:, None].astype(np.int64)
        for i in np.flatnonzero(self.answers[:, 0] == self.answers[:, 1]).tolist():
            check(False, f"answer and source_answer of {names[i]} are both token "
                  f"{self.answers[i, 0]} ({model.texts([int(self.answers[i, 0])])[0]!r}); expected "
                  "two that differ")
        given: np.ndarray = (frame[["label", "source_label"]].astype(str).to_numpy()
                             if "label" in frame else self.answers)
        codes, values = pd.factorize(given.ravel())
        labels = codes.reshape(-1, 2).astype(np.int64)
        for i in np.flatnonzero(labels[:, 0] == labels[:, 1]).tolist():
            check(False, f"label and source_label of {names[i]} are both "
                  f"{str(values[labels[i, 0]])!r}; expected two that differ")
        if "label" in frame:
            return tuple(map(str, values)), labels
        return tuple(model.texts(values.tolist())), labels

    def _lacking(self) -> dict[str, str]:
        lacks: dict[str, str] = {}
        for grid in self.grids.values():
            lacks |= grid.lacks
        if self.factorial:
            lacks["permuted"] = "a prompt has no examples whose values could be permuted"
        elif not self.grids and "control" not in self.ids:
            lacks["control"] = ("the minimal pairs have no column control, a prompt with the same "
                                "answer")
        frame = self.prompts.labels
        known = self.rows("train") if "split" not in frame else np.flatnonzero(
            frame["split"] == "train")
        unseen = set(range(len(self.constituents))) - set(self.labels[known, 0].tolist())
        if len(set(self.layouts)) > 1:
            lacks["means"] = lacks["erasers"] = (
                "prompts whose numbers of tokens, queries or keys differ have no mean code; "
                "expected a single layout")
        elif unseen:
            lacks["means"] = lacks["erasers"] = (
                f"no prompt to measure on has the label {self.constituents[min(unseen)]!r}; "
                "expected each label on some prompt, of split train if there are splits")
        return lacks

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.among == "answers":
            which = "likeliest of the four" if self.factorial else "likelier of the two"
            notes.append(f"The {which} answers counts as the model's, whatever else it would "
                         "rather say.")
        if "control" in self.lacks:
            column = "template" if self.grids else "control"
            notes.append(f"Without prompts of the same answer (column {column}) there is no "
                         "control that tells a flip from damage.")
        if "means" not in self.lacks and "split" not in self.prompts.labels:
            notes.append("Means and erasers, if written, were measured on the prompts that they "
                         "were written to.")
        return tuple(notes)


__all__ = ["Among", "PromptCounterfactuals"]
