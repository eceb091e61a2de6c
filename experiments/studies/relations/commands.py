"""The commands of `latentcode` that ask what the codes of the model say and cause."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from latentcode.errors import RunError, check
from latentcode.experiments.studies.relations.world import PHRASINGS

SITES: Mapping[str, tuple[str, ...]] = {
    "code": (),
    "value": ("--patch", "interchange", "control", "--site", "value", "--scope", "everything",
              "--layers", "each", "all"),
    "residual": ("--patch", "interchange", "control", "--site", "residual", "--scope", "row",
                 "--layers", "each", "all"),
}
"""What is written, and the options for it: the standard interventions; or, where the relation may
be if not in the codes, the values of all words, or the residual stream at the last word."""


def commands(work: Path) -> dict[str, list[str]]:
    """Return the arguments of `latentcode` by what they find."""
    model, results = str(work / "model"), work / "results"
    patched = {}
    for order in PHRASINGS:
        for site, options in SITES.items():
            patched[f"{order}, {site}"] = [
                "intervene", model, "--prompts", str(work / f"{folder_of(order)}.jsonl"), "--out",
                str(results / folder_of(order) / site), "--batch-size", "240", *options]
    return {
        "codes": ["extract", model, "--prompts", str(work / "prompts.jsonl"), "--out",
                  str(work / "codes")],
        "decoding": ["decode", model, "--prompts", str(work / "prompts.jsonl"), "--out",
                     str(results / "decoding")],
        **patched}


def run_command(arguments: Sequence[str]) -> None:
    """Run `latentcode` with these arguments, in one thread; `RunError` where it fails."""
    shown = shlex.join(["latentcode", *arguments])
    print(shown, flush=True)
    done = subprocess.run([sys.executable, "-m", "latentcode", *arguments], check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    check(done.returncode == 0, f"`{shown}` ended with status {done.returncode}; expected 0. Above "
          "stands what it said", RunError)


def folder_of(order: str) -> str:
    """Return what the files of a word order are called."""
    return order.replace(" ", "_")
