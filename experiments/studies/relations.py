"""Which relation is asked? Codes of a pretrained language model, end to end on the command line.

    python -m latentcode.experiments.studies.relations --out experiments/results/relations

1. A world of made-up countries with a capital, a language, a currency and a dish, and a GPT-2 of
   few layers that learns it from sentences such as "the capital of Arvenia is Monburg". Some facts
   are left out of training in one of their phrasings.
2. `latentcode extract-prompts | decode-prompts | intervene-prompts` on the folder that
   `save_pretrained` wrote: is the relation in the codes of the last token? Does the answer follow
   the codes of the same sentence about another relation?

Five minutes of one CPU core. Writes `README.md`, which says what the numbers say, and the results
of the commands. Interrupted, it starts again.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
import tyro

from latentcode.codes import LatentCodes
from latentcode.errors import RunError, check
from latentcode.experiments.benchmarks.figures import markdown
from latentcode.files.provenance import environment
from latentcode.files.storage import check_free, replace_folder, write_json, write_text
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.figure import in_short
from latentcode.progress import bar
from latentcode.seeds import make_generator

COUNTRIES = tuple(stem + ending for ending in ("enia", "ovia", "ora", "istan", "ua")
                  for stem in ("Arv", "Bel", "Cor", "Dal", "Est", "Fal", "Gar", "Hel"))
VALUES: Mapping[str, tuple[str, ...]] = {
    "capital": tuple(stem + ending for ending in ("burg", "ton", "ville", "grad", "port")
                     for stem in ("Mon", "Nor", "Pel", "Quin", "Ros", "Sel", "Tor", "Vel")),
    "language": ("Arvish", "Belese", "Corish", "Dalese", "Estish", "Falese", "Garish", "Helese",
                 "Ivish", "Jorese"),
    "currency": ("crown", "ducat", "florin", "guilder", "mark", "peso", "shilling", "thaler"),
    "food": ("bread", "cheese", "dumplings", "eel", "figs", "goulash", "herring", "lentils",
             "noodles", "porridge", "rice", "soup"),
}
"""Relation -> its values. A country has a capital of its own, and shares the others."""
PHRASINGS: Mapping[str, tuple[str, str]] = {
    "relation first": ("the {relation} of {country} is", "the {relation} in {country} is"),
    "country first": ("in {country} the {relation} is", "for {country} the {relation} is"),
}
"""Word order -> two phrasings of as many words, each the other's control."""
UNTRAINED_FACTS = 0.5
"""Share of the facts that are left out of training in one of their four phrasings."""
PLACES = {"pair": "the pair last->relation", "pairs": "the three pairs",
          "row": "the row of the last word", "everything": "all codes"}
"""Scopes of the codes that are written, and what they are here."""
SITES: Mapping[str, tuple[str, ...]] = {
    "code": (),
    "value": ("--write", "donor", "same", "--site", "value", "--scope", "everything",
              "--layers", "each", "all"),
    "residual": ("--write", "donor", "same", "--site", "residual", "--scope", "row",
                 "--layers", "each", "all"),
}
"""What is written, and the options for it: the standard interventions; or, where the relation may
be if not in the codes, the values of all words, or the residual stream at the last word."""
WIDTH, LAYERS, HEADS = 64, 4, 8
LEARNING_RATE, WEIGHT_DECAY, BATCH = 2e-3, 0.1, 128
BEGINNING = "<s>"
MARKER = "relations.json"
SENTENCES = "sentences.csv"


def make_sentences(n_countries: int, seed: int) -> pd.DataFrame:
    """Return every sentence about a world: one row per country, relation and phrasing.

    Columns `country`, `relation`, `order`, `prompt`, `same` (the prompt in the other phrasing of
    its order), `answer`, and `trained`: whether the sentence is trained on. `ConfigError` for a
    number of countries below 4, or beyond the names that there are.
    """
    check(4 <= n_countries <= len(COUNTRIES),
          f"countries is {n_countries}; expected 4 to {len(COUNTRIES)}")
    generator = make_generator(seed, "world")
    answers = {}
    for relation, values in VALUES.items():
        chosen = (torch.randperm(len(values), generator=generator) if relation == "capital"
                  else torch.randint(len(values), (n_countries,), generator=generator))
        answers[relation] = [values[i] for i in chosen[:n_countries].tolist()]
    rows = []
    for relation in VALUES:
        for country, answer in zip(COUNTRIES[:n_countries], answers[relation], strict=True):
            left_out = -1
            if torch.rand((), generator=generator) < UNTRAINED_FACTS:
                left_out = int(torch.randint(4, (), generator=generator))
            texts = [(order, phrasing.format(relation=relation, country=country), other.format(
                relation=relation, country=country)) for order, both in PHRASINGS.items()
                for phrasing, other in permutations(both)]
            rows += [{"country": country, "relation": relation, "order": order, "prompt": prompt,
                      "same": same, "answer": answer, "trained": i != left_out}
                     for i, (order, prompt, same) in enumerate(texts)]
    return pd.DataFrame(rows)


def train_language_model(
    sentences: pd.DataFrame, folder: Path, *, steps: int, seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Train a GPT-2 of words on the sentences with `trained`; save it as Hugging Face does.

    Every word is predicted from those before it, as in any language model.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    texts = [f"{row.prompt} {row.answer}" for row in sentences.itertuples()]
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: i for i, word in enumerate((BEGINNING, "<unk>", *words))}
    splitter: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=splitter, bos_token=BEGINNING, eos_token=BEGINNING, unk_token="<unk>")
    trained = [BEGINNING + text
               for text, wanted in zip(texts, sentences["trained"], strict=True) if wanted]
    tokens = torch.tensor(tokenizer(trained)["input_ids"])  # [N, T]
    draws = make_generator(seed, "language model batches")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = GPT2LMHeadModel(GPT2Config(
            vocab_size=len(vocabulary), n_positions=16, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        batch = tokens[torch.randint(len(tokens), (BATCH,), generator=draws)]
        logits = model(input_ids=batch[:, :-1]).logits
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def prompts(sentences: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a line of `prompts.jsonl` per sentence: what is asked, of which country."""
    return [{"prompt": row.prompt, "pairs": _pairs(row), "label": row.relation,
             "combination": row.country, "answer": row.answer, "trained": row.trained}
            for row in sentences.itertuples()]


def minimal_pairs(sentences: pd.DataFrame, order: str) -> list[dict[str, Any]]:
    """Return a line of a pairs file per sentence of an order and other relation of its country.

    The donor has the same phrasing, so that it differs in one word.
    """
    rows = sentences[sentences["order"] == order]
    phrased = rows.groupby([rows.index % 4, "country"], sort=False)  # four phrasings of each fact
    return [{"prompt": row.prompt, "answer": f" {row.answer}", "donor": donor.prompt,
             "donor_answer": f" {donor.answer}", "same": row.same, "pairs": _pairs(row),
             "label": row.relation, "donor_label": donor.relation, "combination": row.country}
            for _, block in phrased for row, donor in permutations(block.itertuples(), 2)]


def _pairs(row: Any) -> dict[str, list[Any]]:
    return {"last->relation": [-1, row.relation], "last->country": [-1, row.country],
            "last->last": [-1, -1]}


def commands(work: Path) -> dict[str, list[str]]:
    """Return the arguments of `latentcode` by what they find."""
    model, results = str(work / "model"), work / "results"
    patched = {}
    for order in PHRASINGS:
        for site, options in SITES.items():
            patched[f"{order}, {site}"] = [
                "intervene-prompts", model, str(work / f"{folder_of(order)}.jsonl"), "--out",
                str(results / folder_of(order) / site), "--batch-size", "240", *options]
    return {
        "codes": ["extract-prompts", model, str(work / "prompts.jsonl"), "--out",
                  str(work / "codes")],
        "decoding": ["decode-prompts", model, str(work / "prompts.jsonl"), "--out",
                     str(results / "decoding")],
        **patched}


def run_command(arguments: Sequence[str]) -> None:
    """Run `latentcode` with these arguments, in one thread; `RunError` where it fails."""
    shown = shlex.join(["latentcode", *arguments])
    print(shown, flush=True)
    done = subprocess.run([sys.executable, "-m", "latentcode.cli", *arguments], check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    check(done.returncode == 0, f"`{shown}` ended with status {done.returncode}; expected 0. Above "
          "stands what it said", RunError)


def folder_of(order: str) -> str:
    """Return what the files of a word order are called."""
    return order.replace(" ", "_")


@dataclass(frozen=True)
class Found:
    """What the commands found.

    accuracy  share of the sentences, trained on or not, whose answer the model gives
    decoding  what the codes say
    patched   what they cause, and values and residual streams: word order -> site -> result
    """

    accuracy: Mapping[str, float]
    decoding: DecodingResult
    patched: Mapping[str, Mapping[str, InterventionResult]]

    @classmethod
    def load(cls, work: Path) -> Found:
        """Read what the commands wrote into a work folder."""
        labels = LatentCodes.load(work / "codes").labels
        right = labels["next_token"].str.strip() == labels["answer"]
        results = work / "results"
        return cls(
            {name: float(right[labels["trained"] == trained].mean())
             for name, trained in (("trained", True), ("left out", False))},
            DecodingResult.load(results / "decoding"),
            {order: {site: InterventionResult.load(results / folder_of(order) / site)
                     for site in SITES} for order in PHRASINGS})

    def table(self, order: str) -> pd.DataFrame:
        """Return what every site causes in one word order."""
        return pd.concat([result.table for result in self.patched[order].values()],
                         ignore_index=True)


def findings(found: Found) -> list[str]:
    """Return what the numbers say, a sentence or two each."""
    sentences = [
        f"The model completes {found.accuracy['trained']:.1%} of the sentences that it was trained "
        f"on, and {found.accuracy['left out']:.1%} of those that were left out."]
    table = found.decoding.table[found.decoding.table["metric"] == "accuracy"]
    for pair, rows in table.groupby("pair", sort=False):
        codes = rows[rows["source"] == "code"]
        best = codes.sort_values("value", kind="stable").iloc[-1]
        beside = rows[rows["layer"] == best["layer"]].set_index("source")["value"]
        sentences.append(
            f"At {pair} the code tells the relation best in layer {best['layer']}: "
            f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}] for held-out countries, "
            f"against {beside['untrained']:.2f} with fresh weights, {beside['shuffled']:.2f} with "
            f"shuffled labels, and {beside['residual']:.2f} from the residual stream at the last "
            "word.")
    for order, results in found.patched.items():
        rates = rates_of(found.table(order).query("not renormalized"))
        reached = "; ".join(f"{_largest(rates, 'code', scope)} at {name}"
                            for scope, name in PLACES.items())
        counted = results["code"].settings
        sentences.append(
            f"With the {order} ({counted['n_known']} of {counted['n']} pairs count), the codes of "
            "the same sentence about another relation switch at most these shares of the answers "
            f"to its own: {reached}.")
        sentences.append(
            f"With the {order}, in place of codes: {_largest(rates, 'value', 'everything')} by the "
            f"values of all words; {_largest(rates, 'residual', 'row')} by the residual stream at "
            "the last word.")
        switch, stay = rates["switch"].max(), rates["stay"].min()
        sentences.append(
            f"With the {order}, the same sentence in another phrasing switches at most "
            f"{switch['same']:.2f} and leaves at least {stay['same']:.2f}. Another sentence's "
            f"donor switches at most {switch['shuffled']:.2f}, noise {switch['random']:.2f}, "
            f"another position {switch['elsewhere']:.2f}, the identity {switch['identity']:.2f}.")
    return sentences


def rates_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return switch and stay by write, (metric, write) across; a row per site, scope and layers."""
    rates = table[table["metric"].isin(["switch", "stay"])]
    scope = rates["scope"] + rates["renormalized"].map({True: ", renormalised", False: ""})
    return rates.assign(scope=scope).pivot_table(
        index=["site", "scope", "layers"], columns=["metric", "write"], values="value", sort=False)


def _largest(rates: pd.DataFrame, site: str, scope: str) -> str:
    """Return the largest switch rate by donors over sets of layers, and where that is."""
    rows = rates.reset_index()
    rows = rows[(rows["site"] == site) & (rows["scope"] == scope)]
    best = int(rows["switch", "donor"].argmax())
    return (f"{rows['switch', 'donor'].iloc[best]:.2f} (layers "
            f"{in_short(str(rows['layers'].iloc[best]))}, where "
            f"{rows['stay', 'donor'].iloc[best]:.2f} stay)")


def page(
    found: Found, said: Sequence[str], run: Sequence[Sequence[str]], settings: Mapping[str, Any]
) -> str:
    """Return the page of the results, as Markdown."""
    parts = [
        "# Which relation is asked? The codes of a small pretrained language model",
        "Written by `python -m latentcode.experiments.studies.relations`. A GPT-2 of "
        f"{LAYERS} layers, {HEADS} heads and width {WIDTH} learned, in {settings['steps']:,} "
        f"updates, the facts about {settings['countries']} made-up countries (capital, language, "
        "currency, food) from sentences in four phrasings: "
        + "; ".join(f"*{text}*" for both in PHRASINGS.values() for text in both)
        + f". {settings['left_out']} of {settings['sentences']} sentences were left out, each a "
        "fact in one phrasing.",
        "## What the numbers say", "\n".join(f"- {sentence}" for sentence in said),
        "One model, one seed, a toy world: this shows what the commands measure, and is no claim "
        "about large language models.",
        "## What can be read out (held-out countries)",
        "Accuracy of logistic probes. The key of last->relation is the word that is asked for, "
        "which gives each relation scores of its own under random weights, too.",
        "![accuracy of probes by layer and pair](figures/decoding.png)",
        _table(found.decoding.summary(("accuracy",)).drop(columns=["label", "metric"]))]
    parts += [
        "## What is caused",
        "Shares of the answers that switch to the donor's / that stay; the others become a third "
        "answer. `table.csv` of each folder has the intervals. `donor`: the sentence about another "
        "relation; `same`: the sentence in another phrasing, which differs in a small word and has "
        "the same answer, so that its codes are close; `elsewhere`: the donor's codes of the word "
        "before the last; `shuffled`: another sentence's donor; `random`: noise."]
    for order, results in found.patched.items():
        rates = rates_of(found.table(order))
        cells = pd.DataFrame({write: [
            "" if pd.isna(switch) else f"{switch:.2f} / {stay:.2f}" for switch, stay in zip(
                rates["switch", write], rates["stay", write], strict=True)]
            for write in rates["switch"].columns}, index=rates.index)
        parts += [
            f"### {order.capitalize()}: *{PHRASINGS[order][0]}*",
            f"![switch rates](figures/{folder_of(order)}.png)",
            _table(cells.reset_index()), " ".join(results["code"].caveats)]
    parts += ["## The commands", "```\n" + "\n".join(
        shlex.join(["latentcode", *arguments]) for arguments in run) + "\n```"]
    return "\n\n".join(parts) + "\n"


def _table(table: pd.DataFrame) -> str:
    return markdown([str(name) for name in table.columns],
                    [[str(cell) for cell in row] for row in table.itertuples(index=False)])


def main(
    out: Path = Path("experiments/results/relations"),
    work: Path = Path("runs/relations"),
    countries: int = 40,
    steps: int = 1_000,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Train a language model on a made-up world, ask what its codes say and cause.

    Args:
        out: Folder of the page, the tables and the figures.
        work: Folder of the model, the prompts and the codes; begun anew by every call.
        countries: Number of countries.
        steps: Number of updates of the language model.
        seed: Seed of the world and of the model.
        overwrite: Replace a result that `out` already holds.
    """
    torch.set_num_threads(1)  # two threads are slower at this size, and the bits shall not vary
    check(steps >= 1, f"steps is {steps}; expected at least 1")
    check_free(out, overwrite=overwrite, marker=MARKER)
    sentences = make_sentences(countries, seed)
    with replace_folder(work, overwrite=True, marker=SENTENCES) as temporary:
        sentences.to_csv(temporary / SENTENCES, index=False)
    _write_lines(work / "prompts.jsonl", prompts(sentences))
    for order in PHRASINGS:
        _write_lines(work / f"{folder_of(order)}.jsonl", minimal_pairs(sentences, order))
    train_language_model(sentences, work / "model", steps=steps, seed=seed,
                         progress=bar("training"))
    run = commands(work)
    for arguments in run.values():
        run_command(arguments)
    found = Found.load(work)
    said = findings(found)
    settings = {"countries": countries, "steps": steps, "seed": seed, "sentences": len(sentences),
                "left_out": int((~sentences["trained"]).sum())}
    with replace_folder(out, overwrite=overwrite, marker=MARKER) as temporary:
        shutil.copytree(work / "results", temporary, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("*.png"))
        (temporary / "figures").mkdir()
        drawn = {folder_of(order): both["code"].figure() for order, both in found.patched.items()}
        for name, figure in {"decoding": found.decoding.figure(), **drawn}.items():
            figure.savefig(temporary / "figures" / f"{name}.png", dpi=80)
        write_text(temporary / "README.md", page(found, said, list(run.values()), settings))
        write_json(temporary / MARKER, {
            "settings": settings, "accuracy": dict(found.accuracy), "findings": said,
            "environment": environment("cpu")})
    print("\n".join(said))
    print(f"wrote result {out}")


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    tyro.cli(main)
