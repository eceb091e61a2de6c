"""Where does the operation travel? Patches at the places of a problem, in many runs.

    python -m latentcode.experiments.studies.operation context \
        --runs experiments/results/runs/sraven_known/* experiments/results/runs/sraven_confirm/* \
        experiments/results/runs/paper_logic/* logic-hyla logic-linear logic-softmax \
        --work WORK --out experiments/results/context

patches codes and values at the context, the operands and the response (`patches`), counts whose
answer comes, and says which criteria of `context.yaml` each kind of attention meets
(`contrasts.statements`). What was measured of a run is kept in `work`, so that an interrupted study
goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.config import to_dict
from latentcode.errors import ProbeError, check
from latentcode.experiments.evidence.keeping import kept, key_of
from latentcode.experiments.evidence.writing import csv_of, write_study, write_tables
from latentcode.experiments.studies.operation import inside, parts
from latentcode.experiments.studies.operation.context_figure import places_figure
from latentcode.experiments.studies.operation.contrasts import EXPLORATORY, ROLES, tables
from latentcode.experiments.studies.operation.patches import CONTEXT, measured, patches
from latentcode.files.storage import read_json, replace_file, replace_folder
from latentcode.models.config import kind_of
from latentcode.probes.common.results import distinct, where
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import make_counterfactuals, make_task

N_DECODED = 2_048
"""Problems that probes are fitted on, and that they are scored on."""
WIDTH = 128
"""Dimensions that what is decoded from is reduced to."""
FEATURES_READ = ("code", "codes.context", "values.context", "tokens.context")
"""What is decoded from, beside the paper's pair: codes, values and streams of the context."""
METRICS_READ = ("accuracy", "balanced_accuracy", "macro_f1")
LABELS_READ = {"sraven": ("rule", "answer"), "logic": ("term_1", "answer")}


@dataclass(frozen=True)
class Context:
    """Patch the places of a problem in runs, and say which criteria they meet."""

    runs: tuple[str, ...]
    """Runs, their folders, or names of the zoo."""
    work: Path
    """Folder where what was measured of single runs is kept."""
    out: Path
    """Folder of the tables and figures."""
    n: int = CONTEXT["bases_per_direction"]
    """Bases drawn in each direction; those count that the model answers."""
    batch_size: int = 100
    """Bases at once."""
    seed: int = 0
    """Of the bases."""

    decode: bool = True
    """Decode rule and answer from what stands at the context of the runs that decide."""
    look: bool = True
    """Compare codes of the context by rule in these runs: neighbours, planes, mean codes."""
    parts: bool = True
    """Ask of these runs which heads and keys carry the operation, and whether other seeds do."""
    extend: bool = False
    """Keep what `out` has of other roles (exploratory, confirmatory, replication) than these runs
    have: runs that finish later do not ask for the others to be measured again."""

    def run(self) -> None:
        began = time.monotonic()
        runs = [load_run(name) for name in self.runs]
        found = {run.id: self._patched(run) for run in runs}
        decide = [run for run in runs if run.path.parent.name == CONTEXT["confirmatory"]]
        decoded = {run.id: self._decoded(run) for run in decide if self.decode}
        looked = [self._kept("looked", (run,), inside.looked_at) for run in decide if self.look]
        taken = [self._kept("parts", (run,), parts.heads_and_keys)
                 for run in decide if self.parts]
        carried = [self._kept("carried", both, parts.carried)
                   for both in parts.pairs_of_seeds(decide) if self.parts]
        made = tables(runs, found, decoded, self.seed) | {
            name: table for parts_of in (looked, taken, carried)
            for name, table in together(parts_of).items()}
        settings = {"n": self.n, "seed": self.seed, "batch_size": self.batch_size,
                    "n_decoded": N_DECODED}
        asked = [{"grid": run.path.parent.name, "name": run.name, "id": run.id,
                  "step": run.checkpoints()[-1], "config": to_dict(run.config)} for run in runs]
        written, others = (extended(self.out, made, settings, asked) if self.extend
                           else (made, []))
        write_tables(self.out, written)
        write_study(self.out, "study", {"settings": settings, "runs": [*others, *asked]},
            {f"figures/{role}_{task}.png": places_figure(
                where(made["over_runs"], role=role), task)
             for role, task in distinct(made["over_runs"], "role", "task")}
            | ({"figures/heads_and_keys.png": parts.sets_figure(made["sets"])} if taken else {})
            | {f"figures/planes_{kind_of(run.config.model)}.png": inside.planes_figure(
                run, where(made["separation"], run=run.name), self.seed)
               for run in inside.first_of_kinds(decide) if looked})
        print(f"{(time.monotonic() - began) / 60:.1f} minutes; wrote {self.out / 'tables'}")

    def _patched(self, run: Run) -> pd.DataFrame:
        task = make_counterfactuals(make_task(run.config.task))
        key = key_of([run], {"n": self.n, "seed": self.seed, "batch_size": self.batch_size,
                             "patches": list(map(str, patches(task, run.config.model.n_layers)))})
        path = self.work / f"{run.path.parent.name}-{run.name}-{key}.parquet"
        if not path.exists():
            self.work.mkdir(parents=True, exist_ok=True)
            print(run.path.parent.name, run.name, flush=True)
            with replace_file(path) as temporary:
                measured(run, n=self.n, seed=self.seed, batch_size=self.batch_size,
                         progress=bar("patching")).to_parquet(temporary, index=False)
        return pd.read_parquet(path)

    def _kept(
        self, what: str, runs: tuple[Run, ...], make: Callable[..., dict[str, pd.DataFrame]]
    ) -> dict[str, pd.DataFrame]:
        """Return tables of a run, or of a pair, of which the last is `run` and the first `other`.
        """
        names = "-".join(run.name for run in runs)
        folder = self.work / f"{runs[0].path.parent.name}-{names}-{what}-{key_of(runs, {})}"
        if not folder.exists():
            print(what, names, flush=True)
            with replace_folder(folder, overwrite=False, marker="tables") as temporary:
                tables = make(*runs, self.seed)
                for name, table in tables.items():
                    table.to_parquet(temporary / f"{name}.parquet", index=False)
        about = {"kind": kind_of(runs[-1].config.model), "run": runs[-1].name,
                 **({"other": runs[0].name} if len(runs) > 1 else {})}
        return {path.stem: pd.read_parquet(path).assign(**about)
                for path in sorted(folder.glob("*.parquet"))}

    def _decoded(self, run: Run) -> DecodingResult:
        # They were called so, and what was kept under these names is found again.
        key = key_of([run], {"n": N_DECODED, "seed": self.seed,
                             "sources": ("pair", *FEATURES_READ[1:])})
        folder = self.work / f"{run.path.parent.name}-{run.name}-rows-{key}"
        return kept(folder, DecodingResult, partial(
            decode, run, run.config.task, LABELS_READ[run.config.task.name],
            features=FEATURES_READ, widths=WIDTH, metrics=METRICS_READ, n_train=N_DECODED,
            n_heldout=N_DECODED, seed=self.seed, progress=bar("decoding")))


def extended(
    out: Path, made: Mapping[str, pd.DataFrame], settings: Mapping[str, Any],
    asked: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, pd.DataFrame], list[Mapping[str, Any]]]:
    """Return tables with the rows that `out` has of other roles before them, and those runs.

    `ProbeError` where `out` was measured with other settings, or has no study.
    """
    check((out / "study.json").is_file(), f"{out} holds no study to extend; expected the folder of "
          "an earlier one", ProbeError)
    study = read_json(out / "study.json")
    check(study["settings"] == settings, f"{out} was measured with {study['settings']}; expected "
          f"the settings of this study, {settings}", ProbeError)
    def role(run: Mapping[str, Any]) -> str:
        return ROLES.get(str(run["grid"]), EXPLORATORY)

    roles, tables = {role(run) for run in asked}, {}
    for name, table in made.items():
        path = out / "tables" / f"{name}.csv"
        if "role" not in table or not path.exists():  # of the runs that decide alone, or new
            tables[name] = table
            continue
        text = pd.read_csv(StringIO(csv_of(table)), dtype=str, keep_default_na=False)
        before = pd.read_csv(path, dtype=str, keep_default_na=False)
        tables[name] = pd.concat([before[~before["role"].isin(roles)], text], ignore_index=True)
    return tables, [run for run in study["runs"] if role(run) not in roles]


def together(of_runs: Sequence[Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Return the tables of several runs by name, each run's below the others."""
    return {name: pd.concat([found[name] for found in of_runs], ignore_index=True)
            for name in (of_runs[0] if of_runs else ())}
