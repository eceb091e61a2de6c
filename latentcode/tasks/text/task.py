"""Text: every token but the last is given, every token but the first is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import check
from latentcode.metrics import Metric
from latentcode.tasks.base import SPLITS, Batch, Task, at, one_of
from latentcode.tasks.pairs import Pair
from latentcode.tasks.text.render import Drawing, draw_html, draw_small, draw_text, visible
from latentcode.tasks.text.sources import StoredText, open_text
from latentcode.tasks.text.streams import Stream
from latentcode.tasks.text.tokens import (
    INDUCTION,
    PATTERNS,
    SAME,
    TokenTable,
    frequency_bins,
    keys_at,
    possible_queries,
    token_labels,
)


class Text(Task):
    """log p(x_1 .. x_T) = sum_t log p(x_t | x_0 .. x_t-1) of T + 1 successive tokens.

    An instance is an excerpt of the text and, for those who read codes, one of its tokens as the
    query: any that ends no document and for which all patterns (`tokens.PATTERNS`) have keys,
    no two of them the same. Excerpts without such a token are left out. A combination is the
    document that the query's token belongs to.

    data  the text; default: what the configuration names
    """

    name = "language"
    constituent = "document"
    headline = "perplexity"
    lower_is_better = True
    config: LanguageConfig

    def __init__(self, config: LanguageConfig, data: StoredText | None = None) -> None:
        self.data = open_text(config) if data is None else data
        # That of an opened text has its revision.
        super().__init__(getattr(self.data, "config", config))
        self.excerpts = cache(self.data.excerpts)
        self._tables: dict[tuple[str, torch.device], tuple[Tensor, Tensor, Tensor]] = {}

    @cached_property
    def probe_labels(self) -> tuple[str, ...]:
        """Whether the next token is copied, and the classes of query, key and next token.

        Copied alone where a single class has 19 of 20 tokens of the text.
        """
        classes = self.token_table.classes[self.excerpts("train").tokens.numpy()]
        if np.bincount(classes.ravel()).max() > 0.95 * classes.size:
            return ("copied",)
        return ("copied", "next_class", "query_class", "key_class")

    @cached_property
    def pairs(self) -> Mapping[str, Pair]:
        """A pair of every pattern, the induction pair first."""
        return {name: Pair(name, f"The query attending to {pattern.description}.")
                for name, pattern in PATTERNS.items()}

    def positions(self, names: Sequence[str], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return query and key token positions of the named pairs, each int64 [B, P]."""
        self.check_pairs(names)
        key = keys_at(batch.inputs, batch.info["query"], names)
        return batch.info["query"][:, None].expand_as(key).clone(), key

    def key_sets(self, batch: Batch) -> dict[str, Tensor]:
        """Return `patterns`: the keys of all pairs."""
        return {"patterns": self.positions(tuple(PATTERNS), batch)[1]}

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the text has, out of `SPLITS`."""
        return tuple(split for split in SPLITS if split in self.data.splits)

    def why_no_split(self, split: str) -> str:
        """Return why the text lacks a split."""
        return "the text has no such documents"

    def combinations(self, split: str) -> Tensor:
        """Return numbers of the documents of a split, int64 [N, 1], of which no other has any."""
        self.check_split(split)
        documents = torch.arange(len(self.excerpts(split).documents))
        return (len(SPLITS) * documents + SPLITS.index(split))[:, None]

    def sample(
        self, split: str, n: int, generator: torch.Generator, queries: Tensor | None = None
    ) -> Batch:
        """Draw n excerpts of a split, each as often as any other, and a query of each.

        queries  bool [N, T], those of the excerpts to draw among, at least one; default: all
        """
        device = generator.device
        if queries is None:
            queries = self.queries(split, device)
            check(bool(queries.any()), f"of the {len(queries)} excerpts of split {split!r}, "
                  f"{self.config.n_tokens} tokens each, none has a token with a key of every "
                  f"pattern ({', '.join(PATTERNS)}); expected longer sequences (task.n_tokens)")
        rows = queries.any(1).nonzero()[:, 0]
        order = torch.cat([torch.randperm(len(rows), generator=generator, device=device)
                           for _ in range(-(-n // len(rows)))])[:n]
        return self.build(split, rows[order], one_of(queries[rows[order]], generator))

    def queries(self, split: str, device: torch.device) -> Tensor:
        """Return which tokens of the excerpts of a split can be queries, bool [N, T]."""
        return self._table(split, device)[2]

    def build(self, split: str, sequence: Tensor, query: Tensor) -> Batch:
        """Return given excerpts of a split with given queries, int64 [B] each.

        Info: `query` [B], and `sequence` [B], which excerpt it is.
        """
        every, documents, _ = self._table(split, sequence.device)
        tokens = every[sequence]
        return Batch(tokens[:, :-1], tokens[:, 1:], at(documents[sequence], query),
                     {"query": query, "sequence": sequence}, split)

    def in_order(self, seed: int) -> Stream:
        """Return the text that is trained on, in the order of a seed."""
        return self.data.stream(seed)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """-1/T sum_t log p(x_t+1 | x_0 .. x_t): the mean cross-entropy of each sequence, [B]."""
        return _token_losses(logits, targets).mean(1)

    def measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return means over all tokens of a sequence, and what is at its query; each [B].

        loss, accuracy  in nats, and the share of tokens for which the likeliest is the next one
        query_loss, query_accuracy  of the query alone, whose token has occurred before
        """
        losses = _token_losses(logits, batch.targets)
        right = (logits.argmax(-1) == batch.targets).to(losses.dtype)
        query = batch.info["query"]
        return {"loss": losses.mean(1), "accuracy": right.mean(1),
                "query_loss": at(losses, query), "query_accuracy": at(right, query)}

    def constituent_measures(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return `sequence` [B], the excerpt that each instance is."""
        return {"sequence": batch.info["sequence"]}

    def summarize(self, measures: Mapping[str, np.ndarray]) -> dict[str, Metric]:
        """Return the means of `measures`, and perplexity = exp(mean loss).

        Standard errors are clustered by sequence, that of perplexity by the delta method:
        perplexity times that of the loss.
        """
        sequence = measures.get("sequence", np.arange(len(measures["loss"])))
        metrics = {name: _clustered(values, sequence)
                   for name, values in measures.items() if name != "sequence"}
        loss = metrics["loss"]
        perplexity = float(np.exp(loss.mean))
        return {"perplexity": Metric(perplexity, perplexity * loss.se, loss.n), **metrics}

    def labels(self, batch: Batch) -> pd.DataFrame:
        """Return what is known of each instance, one row each.

        The columns of `tokens.token_labels`, and

        query_token, key_token, target  the query's token, the induction pair's key, what comes next
        query_position  which token of the excerpt the query is
        document, source, kind  name of the query's document, where it is from, its language
        combination    split and number of the document; split: the split of the batch
        """
        batch = batch.to("cpu")
        query, tokens = batch.info["query"], whole(batch)
        key = self.positions(tuple(PATTERNS)[:1], batch)[1][:, 0]
        names = np.array(self.token_table.names, dtype=object)
        documents = self.excerpts(batch.split).documents.iloc[batch.combination.numpy()]
        return token_labels(tokens, query, self.token_table).assign(
            query_token=names[at(tokens, query)], key_token=names[at(tokens, key)],
            target=names[at(tokens, query + 1)], query_position=query.numpy(),
            **{label: documents[column].astype(str).to_numpy() for label, column in (
                ("document", "name"), ("source", "source"), ("kind", "kind"))},
            combination=[f"{batch.split} {number}" for number in batch.combination.tolist()],
            split=batch.split)

    def row_labels(self, labels: pd.DataFrame, token: int | None) -> pd.DataFrame:
        """Return operand: classes of query and key; operation: copied or not; answer: class of
        the next token."""
        return pd.DataFrame({
            "operand_query": labels["query_class"], "operand_key": labels["key_class"],
            "copied": labels["copied"], "answer": labels["next_class"]})

    def names_of(self, batch: Batch, index: int) -> tuple[str, ...]:
        """Return the number and the text of every token, in quotation marks."""
        return tuple(f"{position} {visible(self.token_table.names[token])}"
                     for position, token in enumerate(batch.inputs[index].tolist()))

    def render(self, batch: Batch, index: int, format: str = "text") -> str:
        """Return the text of instance `index`, its query and induction pair marked."""
        self.check_render(batch, index, format)
        drawing = self.drawing(batch, index)
        return draw_text(drawing) if format == "text" else draw_html(drawing)

    def sketch(self, batch: Batch, index: int) -> str:
        """Return what is around the query and its key, with the token that comes next."""
        self.check_render(batch, index, "html")
        return draw_small(self.drawing(batch, index))

    def format_answers(self, answers: Tensor, batch: Batch) -> list[tuple[int | float | str, ...]]:
        """Return the text of the token after each query, in quotation marks."""
        tokens = at(answers, batch.info["query"].to(answers.device))
        return [(repr(self.token_table.names[token]),) for token in tokens.tolist()]

    def drawing(self, batch: Batch, index: int) -> Drawing:
        """Return instance `index` as `draw_html` takes it."""
        instance = batch[index:index + 1].to("cpu")
        query = instance.info["query"]
        key, earlier = keys_at(instance.inputs, query, (INDUCTION, SAME))[0].tolist()
        document = self.excerpts(batch.split).documents.iloc[int(instance.combination)]
        tokens = whole(instance)[0].tolist()
        return Drawing([self.token_table.pieces[token] for token in tokens], int(query), key,
                       earlier, str(document["name"]), tokens)

    @cached_property
    def token_table(self) -> TokenTable:
        """What the texts of all token ids say."""
        return TokenTable.of(self.data.tokenizer, self.config.n_vocabulary)

    @cached_property
    def frequency_bins(self) -> np.ndarray:
        """The decade of the frequency of every id in the excerpts of `train`, int64 [V]."""
        return frequency_bins(self.excerpts("train").tokens, self.config.n_vocabulary)

    def _table(self, split: str, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return the excerpts of a split and their documents, int64 [N, T + 1], and which of their
        tokens can be queries, bool [N, T], copied to a device once."""
        self.check_split(split)
        if (split, device) not in self._tables:
            excerpts = self.excerpts(split)
            inputs = excerpts.tokens[:, :-1]
            queries = possible_queries(inputs) & (inputs != self.data.tokenizer.end)
            self._tables[split, device] = (
                excerpts.tokens.to(device), excerpts.document.to(device), queries.to(device))
        return self._tables[split, device]


def _token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets)


def whole(batch: Batch) -> Tensor:
    """Return the tokens of instances with the one that comes after the last, int64 [B, T + 1]."""
    return torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)


def _clustered(values: np.ndarray, cluster: np.ndarray) -> Metric:
    """Return mean(x) and sqrt(G / (G - 1) sum_g (sum_{i in g} x_i - mean)^2) / n, G clusters."""
    x, n = np.asarray(values, dtype=np.float64), len(values)
    _, group = np.unique(cluster, return_inverse=True)
    n_groups = int(group.max(initial=-1)) + 1
    mean = float(x.mean()) if n else float("nan")
    sums = np.bincount(group, x - mean, minlength=n_groups)
    se = (float(np.sqrt(n_groups / (n_groups - 1) * np.square(sums).sum()) / n)
          if n_groups > 1 else float("nan"))
    return Metric(mean, se, n)
