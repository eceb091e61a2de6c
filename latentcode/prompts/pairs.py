"""What would a language model say to the other question? Minimal pairs of prompts.

    {"prompt": "The capital of France is", "answer": " Paris",
     "source": "The language of France is", "source_answer": " French",
     "control": "The capital in France is", "query": -1, "key": "France"}

They are prompts (`latentcode.prompts`) with a few columns more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import SplitError, check, check_choice
from latentcode.models.pretrained import layout
from latentcode.prompts import LanguageModel, Prompts, as_language_model, as_prompts
from latentcode.prompts.prompts import row_name
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    Counterfactuals,
    MinimalPairs,
    code_mask,
    row_mask,
)

NEEDED = ("source", "answer", "source_answer")
Among = Literal["vocabulary", "answers"]


class PromptCounterfactuals(Counterfactuals):
    """A prompt, and a source of as many tokens that asks something else. What comes next?

    Columns beside those of `Prompts.from_frame`:

    source          a prompt of the same number of tokens; `query` and `key` are the same tokens
    answer, source_answer  what comes after the prompt and after the source: text that is one token
                   there, or the id of a token
    control        a prompt of the same number of tokens with the prompt's answer, the control;
                   without this column `control` cannot be written
    label, source_label  the constituent that differs; default: the answers
    combination    what the bootstrap resamples as one; default: prompts of equal text
    split          `train` for means and erasers, `ood` to write to; default: all for both

    among  what counts as the model's answer: the likeliest token of the `vocabulary`, or, for
           models that rarely say either, the likelier of the two `answers`
    prepend_bos  as in `subject`

    Answers are read after the last token, wherever the query is. A batch holds prompts of one
    *layout*, as many tokens with query and key at the same places: codes of another prompt fit
    in, and nothing is padded.

    Raises what `Prompts.from_frame` and `Prompts.tokenize` raise, `ConfigError` that names a row
    whose source, answer or label cannot be used, and a query that is the first token.
    """

    n_slots = 1
    exclusive = True
    least_problems = 1  # no more can be drawn than there are

    def __init__(
        self,
        model: Any,
        prompts: Prompts | pd.DataFrame | str | Path,
        *,
        among: Among = "vocabulary",
        prepend_bos: bool | None = None,
    ) -> None:
        check_choice("among", among, ("vocabulary", "answers"))
        self.among = among
        self.prompts = as_prompts(prompts)
        frame = self.prompts.labels
        missing = [column for column in NEEDED if column not in frame]
        check(not missing, f"minimal pairs have no column {', '.join(missing)}; expected prompt, "
              f"{', '.join(NEEDED)}, and query and key; they have {list(frame.columns)}")
        check(("label" in frame) == ("source_label" in frame), "minimal pairs have only one of the "
              "columns label and source_label; expected both, or neither")
        asked = as_language_model(model)
        tokens = self.prompts.tokenize(asked, prepend_bos)
        self.begins = asked.begins(prepend_bos)
        self.doubt = (
            f" The prompts begin {'with' if self.begins else 'without'} the token for a beginning;"
            f" expected prepend_bos={not self.begins} (--prepend-bos "
            f"{'no' if self.begins else 'yes'}) if the model was trained the other way")
        names = [row_name(i, text) for i, text in enumerate(frame["prompt"])]
        if layout(asked.model).causal:
            tokens.check_causal(self.prompts)
        for i, p in np.argwhere(tokens.query == 0):
            check(False, f"pair {self.prompts.pairs[p].name!r} of {names[i]} has query 0, the "
                  "first token, before which there is none and which under a causal mask sees "
                  "nothing but itself; expected a later one")
        self.positions = np.stack([tokens.query, tokens.key], axis=1)  # [N, 2, P]
        self.ids = {"prompt": [list(ids) for ids in tokens.ids]}
        for column in [name for name in ("source", "control") if name in frame]:
            self.ids[column] = [
                _matching(asked, column, frame[column].iloc[i], ids, names[i], prepend_bos)
                for i, ids in enumerate(self.ids["prompt"])]
        self.answers = np.asarray([
            [_next_token(asked, column, frame[column].iloc[i], frame[prompt].iloc[i],
                         self.ids[prompt][i], names[i], prepend_bos)
             for prompt, column in (("prompt", "answer"), ("source", "source_answer"))]
            for i in range(len(frame))], dtype=np.int64)
        for i in np.flatnonzero(self.answers[:, 0] == self.answers[:, 1]):
            check(False, f"answer and source_answer of {names[i]} are both token "
                  f"{self.answers[i, 0]} ({asked.texts([int(self.answers[i, 0])])[0]!r}); expected "
                  "two that differ")
        self.constituents, self.labels = self._label(asked)
        for i in np.flatnonzero(self.labels[:, 0] == self.labels[:, 1]):
            check(False, f"label and source_label of {names[i]} are both "
                  f"{self.constituents[self.labels[i, 0]]!r}; expected two that differ")
        self.combinations = pd.factorize(frame["combination"])[0].astype(np.int64)
        keys = [(len(ids), where.tobytes())
                for ids, where in zip(self.ids["prompt"], self.positions, strict=True)]
        self.layouts = pd.factorize(pd.Series(keys))[0]
        self.chance = 0.5 if among == "answers" else 1.0 / asked.vocabulary
        self.scopes = ("pair", "pairs", "row", "everything")
        if self.positions.shape[2] == 1:
            self.scopes = ("pair", "row", "everything")
        self.lacks = self._lacking()
        self.notes = self._notes()

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, split: str) -> np.ndarray:
        """Return which prompts a split holds: all of them, where they have no column `split`."""
        if "split" not in self.prompts.labels:
            return np.arange(len(self))
        splits = self.prompts.labels["split"]
        rows = np.flatnonzero(splits == split)
        check(len(rows) > 0, f"no prompt is of split {split!r}; they are of "
              f"{', '.join(sorted(set(splits)))}", SplitError)
        return rows

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n pairs of the commonest layout of a split, each at most once."""
        rows = self.rows(split)
        layouts, counts = np.unique(self.layouts[rows], return_counts=True)
        rows = rows[self.layouts[rows] == layouts[counts.argmax()]]
        check(n <= len(rows), f"n is {n}; expected at most {len(rows)}, the prompts of split "
              f"{split!r} that share the commonest layout")
        order = torch.randperm(len(rows), generator=generator, device=generator.device)
        return self._minimal(rows[order[:n].cpu().numpy()], split, generator.device)

    def batches(
        self, split: str, n: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[MinimalPairs]:
        """Yield the first n pairs of a split, layout by layout, in their order."""
        rows = self.rows(split)
        check(n <= len(rows), f"n is {n}; expected at most {len(rows)}, the prompts of split "
              f"{split!r}")
        rows = rows[:n]
        for one in pd.unique(self.layouts[rows]):
            alike = rows[self.layouts[rows] == one]
            for start in range(0, len(alike), batch_size):
                yield self._minimal(alike[start:start + batch_size], split, generator.device)

    def membership(self, batch: Batch) -> Tensor:
        """Return which label each prompt has, bool [B, 1, label]."""
        return F.one_hot(batch.info["label"], len(self.constituents)).bool()[:, None]

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes a scope holds, bool [B, Q, K]; of several pairs `row` is the first's.

        elsewhere  of the token before the query, whose row is nearly as long (and its key the
                   token itself, where that does not see the key). Where the source differs in later
                   tokens only, its codes there are the prompt's own.
        """
        self.check_scope(name)
        batch = pairs.instances
        query, key = batch.info["query"], batch.info["key"]  # [B, P]
        if elsewhere:
            query = query - 1
            key = torch.minimum(key, query)
        n_tokens = batch.inputs.shape[1]
        if name == "everything":
            return torch.ones(len(batch), n_tokens, n_tokens, dtype=torch.bool,
                              device=query.device)
        if name == "row":
            return row_mask(query[:, :1], n_tokens)
        n_pairs = query.shape[1] if name == "pairs" else 1
        return torch.stack([code_mask(query[:, p], key[:, p:p + 1], n_tokens)
                            for p in range(n_pairs)]).any(0)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        """Return where the model says the answer, bool [B]."""
        ours, theirs = self._says(pairs, logits)
        return theirs if of == "sources" else ours

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what the model says after the prompt, float [B] each.

        flip, unchanged  it says the source's answer, the prompt's
        p_source_answer, p_base_answer  probability of the source's answer, and of the prompt's
        logit_difference  logit of the prompt's answer minus that of the source's, patched;
                       `logit_difference_clean`: unpatched
        moved          how far it went from the unpatched one (0) to that of the source's pass (1)
        kl             KL(clean || patched) of the next token, in nats
        """
        ours, theirs = self._says(pairs, patched)
        before, after = (F.log_softmax(x[:, -1].double(), -1) for x in (clean, patched))
        probability = after.exp()
        at_clean, at_source, at_patched = (self._difference(pairs, x)
                                           for x in (clean, source, patched))
        # Pairs that count have a positive difference before and a negative one with the source; in
        # few bits both may be zero.
        whole = torch.where(at_clean == at_source, 1.0, at_clean - at_source)
        return {"flip": theirs.float(), "unchanged": ours.float(),
                "moved": (at_clean - at_patched) / whole,
                "p_source_answer": probability.gather(1, pairs.sources.targets)[:, 0].float(),
                "p_base_answer": probability.gather(1, pairs.instances.targets)[:, 0].float(),
                "logit_difference": at_patched, "logit_difference_clean": at_clean,
                "kl": (before.exp() * (before - after)).sum(-1).float()}

    def _says(self, pairs: MinimalPairs, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether the model says the prompt's answer, and the source's, bool [B] each."""
        if self.among == "answers":
            difference = self._difference(pairs, logits)
            return difference > 0.0, difference < 0.0
        said = logits[:, -1].argmax(-1)
        return said == pairs.instances.targets[:, 0], said == pairs.sources.targets[:, 0]

    @staticmethod
    def _difference(pairs: MinimalPairs, logits: Tensor) -> Tensor:
        last = logits[:, -1].float()
        return (last.gather(1, pairs.instances.targets)
                - last.gather(1, pairs.sources.targets))[:, 0]

    def _minimal(self, rows: np.ndarray, split: str, device: torch.device) -> MinimalPairs:
        """Return the pairs of rows that share a layout."""
        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=torch.int64, device=device)

        base_label, target = tensor(self.labels[rows]).unbind(1)
        ours, theirs = tensor(self.answers[rows]).split(1, dim=1)
        query, key = tensor(self.positions[rows]).unbind(1)
        combination = tensor(self.combinations[rows])

        def batch(column: str, answer: Tensor, label: Tensor) -> Batch:
            return Batch(tensor([self.ids[column][row] for row in rows]), answer, combination,
                         {"query": query, "key": key, "label": label}, split)

        return MinimalPairs(
            batch("prompt", ours, base_label), batch("source", theirs, target),
            # Without a control the prompt stands in its place; `lacks` keeps it from being written.
            batch("control" if "control" in self.ids else "prompt", ours, base_label),
            torch.zeros_like(base_label), base_label, target,
            torch.ones(len(rows), dtype=torch.bool, device=device))

    def _label(self, model: LanguageModel) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the constituents and each row's two of them, int64 [N, 2]."""
        frame = self.prompts.labels
        if "label" in frame:
            given = frame[["label", "source_label"]].astype(str).to_numpy()
            codes, names = pd.factorize(given.ravel())
            return tuple(map(str, names)), codes.reshape(-1, 2).astype(np.int64)
        codes, tokens = pd.factorize(self.answers.ravel())
        texts = model.texts(tokens.tolist())
        return tuple(text if texts.count(text) == 1 else f"{text} ({token})"
                     for text, token in zip(texts, tokens, strict=True)), codes.reshape(-1, 2)

    def _lacking(self) -> dict[str, str]:
        lacks = {}
        if "control" not in self.ids:
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
            notes.append("The likelier of the two answers counts as the model's, whatever else it "
                         "would rather say.")
        if "control" in self.lacks:
            notes.append("Without prompts of the same answer (column control) there is no control "
                         "that tells a flip from damage.")
        if "means" not in self.lacks and "split" not in self.prompts.labels:
            notes.append("Means and erasers, if written, were measured on the prompts that they "
                         "were written to.")
        return tuple(notes)


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


def _next_token(
    model: LanguageModel, column: str, answer: Any, prompt: str, ids: list[int], name: str,
    prepend_bos: bool | None,
) -> int:
    """Return the token that an answer is after a prompt."""
    size = model.vocabulary
    if isinstance(answer, Integral) and not isinstance(answer, bool):
        check(0 <= int(answer) < size, f"{column} of {name} is token {answer}; expected 0 to "
              f"{size - 1}")
        return int(answer)
    check(isinstance(answer, str) and bool(answer), f"{column} of {name} is {answer!r}; expected "
          "text, or the id of a token")
    longer, _ = model.encode(prompt + answer, prepend_bos)
    check(longer[:len(ids)] == ids, f"{column} {answer!r} of {name} changes the tokens of the "
          f"prompt that it follows, {model.texts(ids)}, into {model.texts(longer)}; expected "
          "an answer that begins with the space before it, or the id of a token")
    after = longer[len(ids):]
    check(len(after) == 1, f"{column} {answer!r} of {name} is {len(after)} tokens "
          f"{model.texts(after)}; expected one, or the id of a token")
    return after[0]


__all__ = ["Among", "PromptCounterfactuals"]
