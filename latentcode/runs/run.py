"""A run: the folder that holds everything about one trained model.

    config.yaml        the configuration that determines the run
    provenance.json    versions, commit, device, threads, configuration hash, format version
    metrics.jsonl      one line per step, split and metric; no wall-clock time
    timing.jsonl       how long it took; the one file that differs between equal runs
    checkpoints/step_0001000/   see `latentcode.runs.checkpoints`

Whatever is here is whole: files and folders are written under a temporary name, flushed and
renamed. Listing and reading runs needs no torch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from glob import escape as escape_glob
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.config import RunConfig, config_hash, flatten, load_config, to_dict, to_yaml
from latentcode.config.run import check_registered, registered_in
from latentcode.errors import ArtifactError, ConfigError, RunError, check
from latentcode.files.locks import exclusive
from latentcode.files.migrations import header, upgrade
from latentcode.files.provenance import check_provenance
from latentcode.files.storage import (
    TEMPORARY,
    check_free,
    check_writable,
    read_json,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.hub.address import origin
from latentcode.metrics import Metric, is_by_constituent
from latentcode.models.config import kind_of
from latentcode.runs.checkpoints import STATE, Checkpoint, publish_checkpoint, write_checkpoint
from latentcode.runs.metric_file import (
    METRICS,
    append_lines,
    append_metrics,
    cut_metrics,
    cut_torn_line,
    read_metrics,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from latentcode.figures.style import Figure
    from latentcode.models.transformer import HookedTransformer

FORMAT = "latentcode.run"
CONFIG, PROVENANCE, TIMING, CHECKPOINTS, LOCK = (
    "config.yaml", "provenance.json", "timing.jsonl", "checkpoints", ".lock")
LOADED_FROM = "loaded_from"
"""The key of a run's provenance that says where on the hub it was downloaded from."""


@dataclass(frozen=True, repr=False)
class Run:
    """A handle on a run folder; make one with `Run.create` or `Run.open`.

    path        the folder
    config      what was trained
    provenance  where it was trained, and where it was resumed
    """

    path: Path
    config: RunConfig
    provenance: Mapping[str, Any]

    @classmethod
    def create(
        cls, path: str | Path, config: RunConfig, *, overwrite: bool = False,
        imported: Mapping[str, Any] | None = None,
    ) -> Run:
        """Make a run folder without checkpoints.

        imported  where the weights come from, if they were not trained here; see `imported`

        `RunError` when the folder already holds something: a run is replaced with `overwrite`
        only, and not while it is being trained; anything else is never touched.
        """
        from latentcode.files.provenance import environment, new_id, now

        path = _named(path)
        check_writable(path)
        occupied = path.exists() and not (path.is_dir() and not any(path.iterdir()))
        if occupied:
            check(_is_run(path), f"{path} exists and is not a run of ours; expected a new or an "
                  "empty folder", RunError)
            check(overwrite, f"{path} already holds a run; resume it (--resume, "
                  "resume=True), choose another folder, or overwrite it (--overwrite, "
                  "overwrite=True)", RunError)
        provenance = {
            **header(FORMAT), "id": new_id(), "created": now(),
            "config_hash": config_hash(config), **environment(config.training.device),
            "resumed": []}
        if imported is not None:
            provenance["imported"] = dict(imported)
        if names := registered_in(config):
            provenance["registered"] = names
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path / LOCK) if occupied else nullcontext():
            for ending in ("", "-old"):
                _remove_stale(path.parent, f"????????-{escape_glob(path.name)}{ending}")
            with replace_folder(path, overwrite=overwrite, marker=PROVENANCE) as folder:
                (folder / CHECKPOINTS).mkdir()
                (folder / METRICS).touch()
                write_text(folder / CONFIG, to_yaml(config))
                write_json(folder / PROVENANCE, provenance)
        return cls(path, config, provenance)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder.

        `RunError` when it is missing, half-written or of another format version, `ArtifactError`
        when a file in it is damaged, `ConfigError` when it has a task (or another name) that a
        user registered and that is not registered here: which file to import.
        """
        path = _named(path)
        check(path.is_dir(), f"{path} is a file; expected a run folder" if path.exists()
              else f"run folder {path} does not exist", RunError)
        for name in (CONFIG, PROVENANCE, METRICS):
            check((path / name).is_file(),
                  f"{path} is not a complete run folder: {name} is missing", RunError)
        provenance = upgrade(read_json(path / PROVENANCE), FORMAT, path, RunError)
        check_provenance(path / PROVENANCE, provenance)
        check_registered(provenance.get("registered", {}), path)
        try:
            config = load_config(path / CONFIG)
        except ConfigError as error:
            raise ArtifactError(str(error)) from None
        mine, wanted = config_hash(config), provenance.get("config_hash")
        check(mine == wanted, f"{path / CONFIG} was changed after the run was created: its hash "
              f"is {mine}; expected {wanted}", ArtifactError)
        if from_hub := origin(path):
            provenance[LOADED_FROM] = str(from_hub)
        return cls(path, config, provenance)

    @property
    def name(self) -> str:
        """Name of the folder, or `user/name` of the repository that it was downloaded from."""
        from_hub = origin(self.path)
        return self.path.name if from_hub is None else from_hub.repo

    @property
    def loaded_from(self) -> str | None:
        """Where on the hub the run was downloaded from, `hf://user/name@commit`, or None."""
        return self.provenance.get(LOADED_FROM)

    @property
    def id(self) -> str:
        """Random identifier given at creation; it survives renaming and copying the folder."""
        return str(self.provenance["id"])

    @property
    def imported(self) -> Mapping[str, Any] | None:
        """Where the weights come from if they were imported, or None.

        file, sha256     the file's name and digest; None for arrays in memory
        step             updates done; None where the file did not say
        training_known   whether `config.training` is the file's, or else the paper's
        held_out_known   whether the task's held-out combinations were given
        """
        return self.provenance.get("imported")

    @property
    def is_complete(self) -> bool:
        """Whether training reached its last step; imported weights are as complete as they get."""
        steps = self.checkpoints()
        return bool(steps) if self.imported else self.config.training.steps in steps

    def check_config(self, config: RunConfig) -> None:
        """Raise `RunError` unless `config` is the run's own and training can resume."""
        check(self.imported is None, f"{self.path} was imported, without the state of the "
              "optimiser and the stream of data: training cannot go on from it", RunError)
        check(not self.checkpoints() or not self.load_checkpoint().is_published, f"{self.path} was "
              "published, without the state of the optimiser and of the random generators: "
              "training cannot go on from it", RunError)
        mine, other = flatten(to_dict(self.config)), flatten(to_dict(config))
        different = [f"{key}: {mine.get(key)!r} in the run, {other.get(key)!r} asked for"
                     for key in {**mine, **other} if mine.get(key) != other.get(key)]
        check(not different, f"{self.path} was created with another configuration "
              f"({'; '.join(different)}); resume it with its own", RunError)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run's lock and clear away what a killed process left half-written.

        `RunError` when another process holds it.
        """
        with exclusive(self.path / LOCK):
            _remove_stale(self.path, "*")
            _remove_stale(self.path / CHECKPOINTS, "*")
            self._delete_old_checkpoints()
            yield

    def checkpoints(self) -> list[int]:
        """Return the steps of the complete checkpoints, rising."""
        folder = self.path / CHECKPOINTS
        named = [(re.fullmatch(r"step_(\d{7,})", entry.name), entry)
                 for entry in (folder.iterdir() if folder.is_dir() else ())]
        return sorted(int(match[1]) for match, entry in named
                      if match and (entry / STATE).is_file())

    def checkpoint_path(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self.path / CHECKPOINTS / f"step_{step:07d}"

    def save_checkpoint(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generators: Mapping[str, torch.Generator],
        extra: Mapping[str, Any],
    ) -> None:
        """Write a checkpoint, all or nothing; then delete all but the newest ones.

        How many stay is `config.training.keep_checkpoints`; those of milestones stay, too.
        """
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)
        with replace_folder(self.checkpoint_path(step), overwrite=True, marker=STATE) as folder:
            write_checkpoint(folder, step=step, config_hash=config_hash(self.config),
                             model=model, optimizer=optimizer, generators=generators, extra=extra)
        self._delete_old_checkpoints()

    def _delete_old_checkpoints(self) -> None:
        keep = self.config.training.keep_checkpoints
        for old in self.checkpoints()[:-keep] if keep is not None else []:
            if old not in self.config.training.milestones:
                self._delete_checkpoint(old)

    def _delete_checkpoint(self, step: int) -> None:
        # Renamed first: a kill half-way must not leave something that looks like a checkpoint.
        path = self.checkpoint_path(step)
        doomed = path.with_name(f"{TEMPORARY}{path.name}")
        os.rename(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def load_checkpoint(self, step: int | None = None) -> Checkpoint:
        """Return the checkpoint of a step, by default the newest.

        `RunError` says which steps there are; `ArtifactError` what is wrong with the files.
        """
        steps = self.checkpoints()
        check(bool(steps), f"{self.path} holds no complete checkpoint yet", RunError)
        step = steps[-1] if step is None else step
        check(step in steps, f"{self.path} has no checkpoint of step {step}; expected one of: "
              f"{', '.join(map(str, steps))}", RunError)
        checkpoint = Checkpoint.open(self.checkpoint_path(step))
        mine = config_hash(self.config)
        check(checkpoint.config_hash == mine, f"{checkpoint.path} belongs to a run with "
              f"configuration hash {checkpoint.config_hash}; expected {mine}", ArtifactError)
        check(checkpoint.step == step, f"{checkpoint.path} says that it is of step "
              f"{checkpoint.step}; expected {step}", ArtifactError)
        return checkpoint

    def publish(
        self, out: str | Path, *, step: int | Sequence[int] | None = None,
        overwrite: bool = False,
    ) -> Run:
        """Copy what others need to use the model, and nothing that training would need to go on.

        The copy is a run with the same `id`, configuration, provenance and metrics, whose
        checkpoint holds the weights alone: a third of the size.

        step  the checkpoint, or several; default: the newest

        Raises what `load_checkpoint` raises, and `RunError` where `out` is occupied, being
        trained, or holds this run, which would be lost.
        """
        steps = [step] if step is None or isinstance(step, int) else sorted(step)
        check(bool(steps), "step is empty; expected the step of at least one checkpoint", RunError)
        checkpoints, out = [self.load_checkpoint(one) for one in steps], _named(out)
        check(not self.path.resolve().is_relative_to(out.resolve()), f"{out} holds the run that "
              f"is published, {self.path}; expected another folder", RunError)
        check_free(out, overwrite=overwrite, marker=PROVENANCE)
        with (exclusive(out / LOCK) if (out / PROVENANCE).exists() else nullcontext(),
              replace_folder(out, overwrite=overwrite, marker=PROVENANCE) as folder):
            for name in (CONFIG, PROVENANCE, METRICS):
                shutil.copyfile(self.path / name, folder / name)
            if self.loaded_from is not None:
                write_json(folder / PROVENANCE, self.provenance)
            cut_metrics(folder / METRICS, checkpoints[-1].step)
            for checkpoint in checkpoints:
                target = folder / CHECKPOINTS / checkpoint.path.name
                target.mkdir(parents=True)
                publish_checkpoint(checkpoint.path, target)
        return Run.open(out)

    def push_to_hub(
        self, repo: str, *, step: int | Sequence[int] | None = None, private: bool = False,
        license: str | None = None, token: str | bool | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Share what `publish` copies, and the run's results, on the Hugging Face hub.

        repo            `user/name`, a repository of models; made if it does not exist
        step            the checkpoint, or several; default: the newest
        private         whether a new repository is
        license         what its page says, such as `mit`; default: nothing
        token           of an account that may write; default: the one that was saved
        commit_message  default: "Push a shared run"

        Returns the address of the commit, which `load_run` opens. It is one commit, or none. Raises
        what `publish` raises, and `HubError` that says why nothing was pushed.
        """
        from latentcode.runs.sharing import push_run

        return push_run(self, repo, step=step, private=private, license=license, token=token,
                        commit_message=commit_message)

    def load_model(
        self, step: int | None = None, device: str | torch.device = "cpu"
    ) -> HookedTransformer:
        """Return the trained model in evaluation mode, by default of the newest checkpoint."""
        from latentcode.devices import resolve_device
        from latentcode.models.transformer import HookedTransformer

        target = resolve_device(str(device))
        checkpoint = self.load_checkpoint(step)
        model = HookedTransformer(self.config.model)
        checkpoint.restore_model(model)
        return model.to(target).eval()

    def metrics(self) -> pd.DataFrame:
        """Return all metrics: columns step, split, metric, mean, se, n.

        `training_loss` is the mean over the batches since the previous record, under changing
        weights and with dropout; everything else is an evaluation of the weights of that step.
        """
        return read_metrics(self.path / METRICS)

    def append_metrics(self, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
        """Add the metrics of one split at one step; they are on disk when this returns."""
        append_metrics(self.path / METRICS, step, split, metrics)

    def append_timing(self, record: Mapping[str, Any]) -> None:
        """Add one line to `timing.jsonl`."""
        append_lines(self.path / TIMING, [json.dumps(dict(record))])

    def prepare_resumption(self, step: int | None) -> None:
        """Forget what there is after `step` (everything for None) and note who resumes.

        A member of an ensemble may have got a checkpoint that others had not when all were killed.
        """
        from latentcode.files.provenance import environment, now

        for newer in self.checkpoints():
            if step is None or newer > step:
                self._delete_checkpoint(newer)
        cut_metrics(self.path / METRICS, -1 if step is None else step)
        cut_torn_line(self.path / TIMING)
        note = {"step": step or 0, "time": now(), **environment(self.config.training.device)}
        known = read_json(self.path / PROVENANCE)
        write_json(self.path / PROVENANCE, {**known, "resumed": [*known["resumed"], note]})

    def newest_metrics(self) -> pd.DataFrame:
        """Return the newest value of every split and metric: rows of `metrics`, in its order."""
        return self.metrics().drop_duplicates(["split", "metric"], keep="last")

    def newest(self, split: str, metric: str) -> Metric | None:
        """Return the newest value of a metric on a split, None before there is one."""
        table = self.newest_metrics()
        rows = table[(table["split"] == split) & (table["metric"] == metric)]
        if rows.empty:
            return None
        mean, se, n = rows[["mean", "se", "n"]].iloc[0]
        return Metric(float(mean), float(se), int(n))

    def latest(self, *, by_constituent: bool = False) -> pd.DataFrame:
        """Return the newest mean of each metric: one row per metric, one column per split.

        by_constituent  the metrics of single rules or terms in place of those of whole instances
        """
        table = self.newest_metrics()
        table = table[table["metric"].map(is_by_constituent).astype(bool) == by_constituent]
        pivot = table.pivot(index="metric", columns="split", values="mean")
        names = list(dict.fromkeys(table["metric"]))  # rules in the order of the task
        return pivot.loc[names if by_constituent else sorted(names),
                         list(dict.fromkeys(table["split"]))]

    def figure(self) -> Figure:
        """How did the metrics of each split change over the steps?

        `RunError` where nothing was measured yet.
        """
        from latentcode.figures.metrics import metrics_figure

        table = self.metrics()
        check(len(table) > 0, f"{self.path} holds no metrics yet", RunError)
        return metrics_figure(table)

    def _facts(self) -> dict[str, str]:
        steps = self.checkpoints()
        done = f"{steps[-1] if steps else 0:,} of {self.config.training.steps:,}"
        if self.imported is not None:
            step = self.imported["step"]
            done = f"{'unknown' if step is None else format(step, ',')}, imported from " + (
                self.imported["file"] or "arrays")
        return {
            **({} if self.loaded_from is None else {"loaded from": self.loaded_from}),
            "folder": str(self.path), "task": self.config.task.name,
            "attention": kind_of(self.config.model),
            "steps": done,
            "checkpoints": ", ".join(map(str, steps)) or "none",
            "created": str(self.provenance["created"]),
            "configuration": str(self.provenance["config_hash"])}

    def __repr__(self) -> str:
        facts = self._facts()
        return (f"Run({self.loaded_from or facts['folder']!r}: {facts['attention']} on "
                f"{facts['task']}, step {facts['steps']})")

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>"
                       for k, v in self._facts().items())
        latest, constituents = self.latest(), self.latest(by_constituent=True)
        picture = self.figure().to_html("metrics over steps") if len(latest) else ""
        table = constituents.to_html(na_rep="") if len(constituents) else ""
        return f"<b>Run</b><table>{rows}</table>{latest.to_html(na_rep='')}{picture}{table}"


def _named(path: str | Path) -> Path:
    """Return a path that ends in the folder's name, also for "." and ".."."""
    path = Path(path)
    return path if path.name not in ("", "..") else path.resolve()


def _is_run(path: Path) -> bool:
    """Whether a folder was made by `Run.create`, of whatever version."""
    if not (path / PROVENANCE).is_file():
        return False
    provenance = read_json(path / PROVENANCE)
    return isinstance(provenance, dict) and provenance.get("format") == FORMAT


def _remove_stale(folder: Path, pattern: str) -> None:
    """Delete what a process that was killed left under a temporary name."""
    for path in folder.glob(f"{TEMPORARY}{pattern}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


__all__ = ["Run"]
