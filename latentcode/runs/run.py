"""A run: the folder that holds everything about one trained model, as an object.

    config.yaml        the configuration that determines the run
    provenance.json    versions, commit, device, threads, configuration hash, format version
    metrics.jsonl      one line per step, split and metric; no wall-clock time
    timing.jsonl       how long it took; the one file that differs between equal runs
    text/              of a language model, see `latentcode.tasks.text.sources`
    checkpoints/step_0001000/   see `latentcode.runs.checkpoints`
    results/           what was found with it, for whoever shares it
    card.json          of a model of the zoo, see `latentcode.zoo`

Whatever is here is whole: files and folders are written under a temporary name, flushed and
renamed. Below the class: from which step training may go on (`check_resumable`, `newest_whole`,
`go_back_to`), and runs by name (`load_run`). Listing and reading runs needs no torch.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from glob import escape as glob_escape
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from latentcode.config import (
    HOW_FIELDS,
    RunConfig,
    check_registered,
    config_hash,
    fill_in,
    flatten,
    load_config,
    own_in,
    to_dict,
    to_yaml,
)
from latentcode.errors import (
    ArtifactError,
    ConfigError,
    RunError,
    UnknownNameError,
    check,
    check_choice,
)
from latentcode.figures.text import markdown_table
from latentcode.files.provenance import (
    check_format,
    check_provenance,
    environment,
    header,
    now,
)
from latentcode.files.storage import (
    TEMPORARY,
    check_free,
    check_writable,
    exclusive,
    read_json,
    replace_folder,
    write_json,
    write_text,
)
from latentcode.hub import PAGE, PICTURES, TAGS, fetch, is_address, origin, page, push
from latentcode.metrics import Metric, is_by_constituent
from latentcode.models.config import kind_of
from latentcode.runs.checkpoints import (
    CHECKPOINTS,
    METRICS,
    MODEL,
    STATE,
    Checkpoint,
    append_lines,
    append_metrics,
    cut_metrics,
    cut_torn_line,
    read_metrics,
    step_folders,
    write_checkpoint,
)
from latentcode.tasks.text.cache import keep_with, make_known

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import nn

    from latentcode.figures.style import Figure
    from latentcode.models.transformer import HookedTransformer

ZOO = Path(__file__).parents[1] / "models" / "zoo"
"""The folder of the models that come with the library."""
ZOO_PREFIX = "zoo:"
"""What a name may begin with, to say that no folder of that name is meant."""
FORMAT = "latentcode.run"
CONFIG, PROVENANCE, TIMING, TEXT, LOCK, RESULTS, CARD = (
    "config.yaml", "provenance.json", "timing.jsonl", "text", ".lock", "results", "card.json")
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

        Args:
            path: The folder.
            config: What is trained.
            overwrite: Replace a run that is there.
            imported: Where the weights come from, if they were not trained here; see `imported`.

        Raises:
            RunError: The folder already holds something: a run is replaced with `overwrite` only,
                and not while it is being trained; anything else is never touched.
        """
        path = with_name(path)
        check_writable(path)
        occupied = path.exists() and not (path.is_dir() and not any(path.iterdir()))
        if occupied:
            known = read_json(path / PROVENANCE) if (path / PROVENANCE).is_file() else None
            check(isinstance(known, dict) and known.get("format") == FORMAT, f"{path} exists and "
                  "is not a run of ours; expected a new or an empty folder", RunError)
            check(overwrite, f"{path} already holds a run; resume it (--resume, "
                  "resume=True), choose another folder, or overwrite it (--overwrite, "
                  "overwrite=True)", RunError)
        provenance = {
            **header(FORMAT), "id": uuid4().hex[:12], "created": now(),
            "config_hash": config_hash(config), **environment(config.training.device),
            "resumed": []}
        if imported is not None:
            provenance["imported"] = dict(imported)
        if own := own_in(config):
            provenance["registered"] = {
                what: {name: source.file} for what, (name, source) in own.items()}
        with exclusive(path / LOCK) if occupied else nullcontext():
            for ending in ("", "-old"):
                remove_stale(path.parent, f"????????-{glob_escape(path.name)}{ending}")
            with replace_folder(path, overwrite=overwrite, marker=PROVENANCE) as folder:
                (folder / CHECKPOINTS).mkdir()
                (folder / METRICS).touch()
                write_text(folder / CONFIG, to_yaml(config))
                write_json(folder / PROVENANCE, provenance)
                keep_with(config.task, folder / TEXT)
        make_known(config.task, path / TEXT)
        return cls(path, config, provenance)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder.

        `RunError` when it is missing, half-written or of another format version, `ArtifactError`
        when a file in it is damaged, `ConfigError` when it has a task (or another name) that a
        user registered and that is not registered here: which file to import.
        """
        path = with_name(path)
        check(path.is_dir(), f"{path} is a file; expected the folder of a run or model"
              if path.exists() else f"run folder {path} does not exist", RunError)
        for name in (CONFIG, PROVENANCE, METRICS):
            check((path / name).is_file(),
                  f"{path} is not a complete run folder: {name} is missing", RunError)
        provenance = check_format(read_json(path / PROVENANCE), FORMAT, path, RunError)
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
        if (path / TEXT).is_dir():
            make_known(config.task, path / TEXT)
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

    @property
    def has_weights(self) -> bool:
        """Whether the newest checkpoint has its weights; it can be published without."""
        steps = self.checkpoints()
        return bool(steps) and (self.checkpoint_path(steps[-1]) / MODEL).is_file()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run's lock and clear away what a killed process left half-written.

        `RunError` when another process holds it.
        """
        with exclusive(self.path / LOCK):
            remove_stale(self.path, "*")
            remove_stale(self.path / CHECKPOINTS, "*")
            self._delete_old_checkpoints()
            yield

    def checkpoints(self) -> list[int]:
        """Return the steps of the complete checkpoints, rising."""
        return [step for step, folder in step_folders(self.path).items()
                if (folder / STATE).is_file()]

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
            write_checkpoint(folder, step=step, config_hash=self.provenance["config_hash"],
                             model=model, optimizer=optimizer, generators=generators, extra=extra)
        self._delete_old_checkpoints()

    def _delete_old_checkpoints(self) -> None:
        keep = self.config.training.keep_checkpoints
        for step in self.checkpoints()[:-keep] if keep is not None else []:
            if step not in self.config.training.milestones:
                self.delete_checkpoint(step)

    def delete_checkpoint(self, step: int) -> None:
        """Delete the checkpoint of a step."""
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
        return Checkpoint.open(self.checkpoint_path(step), step, self.provenance["config_hash"])

    def publish(
        self, out: str | Path, *, step: int | Sequence[int] | None = None, overwrite: bool = False
    ) -> Run:
        """Copy what others need to use the model, and nothing that training would need to go on.

        The copy is a run with the same `id`, configuration, provenance and metrics, whose
        checkpoint holds the weights alone: a third of the size.

        Args:
            out: Folder of the copy.
            step: The checkpoint, or several; default: the newest.
            overwrite: Replace a run that is in `out`.

        Raises:
            RunError: If `out` is occupied, being trained, or holds this run, which would be lost.
            LatentCodeError: What `load_checkpoint` raises.
        """
        steps = [step] if step is None or isinstance(step, int) else sorted(step)
        check(bool(steps), "step is empty; expected the step of at least one checkpoint", RunError)
        checkpoints, out = [self.load_checkpoint(each) for each in steps], with_name(out)
        check(not self.path.resolve().is_relative_to(out.resolve()), f"{out} holds the run that "
              f"is published, {self.path}; expected another folder", RunError)
        check_free(out, overwrite=overwrite, marker=PROVENANCE)
        with (exclusive(out / LOCK) if (out / PROVENANCE).exists() else nullcontext(),
              replace_folder(out, overwrite=overwrite, marker=PROVENANCE) as folder):
            for name in (CONFIG, PROVENANCE, METRICS):
                shutil.copyfile(self.path / name, folder / name)
            if self.loaded_from is not None:
                write_json(folder / PROVENANCE, self.provenance)
            if (self.path / TEXT).is_dir():
                shutil.copytree(self.path / TEXT, folder / TEXT)
            cut_metrics(folder / METRICS, checkpoints[-1].step)
            for checkpoint in checkpoints:
                target = folder / CHECKPOINTS / checkpoint.path.name
                target.mkdir(parents=True)
                checkpoint.publish(target)
        return Run.open(out)

    def push_to_hub(
        self, repo: str, *, step: int | Sequence[int] | None = None, private: bool = False,
        license: str | None = None, token: str | bool | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Share what `publish` copies, and the run's results, on the Hugging Face hub.

        It is one commit, or none.

        Args:
            repo: `user/name`, a repository of models; made if it does not exist.
            step: The checkpoint, or several; default: the newest.
            private: Whether a new repository is.
            license: What its page says, such as `mit`; default: nothing.
            token: Of an account that may write; default: the one that was saved.
            commit_message: Default: "Push a shared run".

        Returns:
            The address of the commit, which `load_run` opens.

        Raises:
            HubError: Why nothing was pushed; also what `publish` raises.
        """
        with TemporaryDirectory() as temporary:
            shared = self.publish(Path(temporary) / "run", step=step)
            if (self.path / CARD).is_file():
                shutil.copyfile(self.path / CARD, shared.path / CARD)
            if (self.path / RESULTS).is_dir():
                shutil.copytree(self.path / RESULTS, shared.path / RESULTS, ignore=(
                    shutil.ignore_patterns(".*", *(f"*{ending}" for ending in PICTURES))))
            return push(shared.path, "run", repo, page=_hub_page(self, shared, repo, license),
                        private=private, token=token, commit_message=commit_message)

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
        from latentcode.figures.panels import metrics_figure

        table = self.metrics()
        check(len(table) > 0, f"{self.path} holds no metrics yet", RunError)
        return metrics_figure(table)

    def __repr__(self) -> str:
        facts = _facts(self)
        return (f"Run({self.loaded_from or facts['folder']!r}: {facts['attention']} on "
                f"{facts['task']}, step {facts['steps']})")

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>"
                       for k, v in _facts(self).items())
        latest, constituents = self.latest(), self.latest(by_constituent=True)
        picture = self.figure().to_html("metrics over steps") if len(latest) else ""
        table = constituents.to_html(na_rep="") if len(constituents) else ""
        return f"<b>Run</b><table>{rows}</table>{latest.to_html(na_rep='')}{picture}{table}"


def with_name(path: str | Path) -> Path:
    """Return a path that ends in the folder's name, also for "." and ".."."""
    path = Path(path)
    return path if path.name not in ("", "..") else path.resolve()


def remove_stale(folder: Path, pattern: str) -> None:
    """Delete what a process that was killed left under a temporary name."""
    for path in folder.glob(f"{TEMPORARY}{pattern}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _facts(run: Run) -> dict[str, str]:
    """Return the name of each fact of a run that is shown, and the fact in words."""
    steps = run.checkpoints()
    done = f"{steps[-1] if steps else 0:,} of {run.config.training.steps:,}"
    if run.imported is not None:
        step = run.imported["step"]
        done = f"{'unknown' if step is None else format(step, ',')}, imported from " + (
            run.imported["file"] or "arrays")
    if steps and not run.has_weights:
        done += ", published without weights"
    return {
        **({} if run.loaded_from is None else {"loaded from": run.loaded_from}),
        "folder": str(run.path), "task": run.config.task.name,
        "attention": kind_of(run.config.model),
        "steps": done,
        "checkpoints": ", ".join(map(str, steps)) or "none",
        "created": str(run.provenance["created"]),
        "configuration": str(run.provenance["config_hash"])}


def _hub_page(run: Run, shared: Run, repo: str, license: str | None) -> str:
    """Return the page of a run on the hub: its own README where it has one, or how to use it.

    Args:
        run: The run.
        shared: The copy that is pushed.
        repo: `user/name`.
        license: What the page says; None for nothing.
    """
    from huggingface_hub import EvalResult, ModelCardData

    task, kind, table = run.config.task.name, kind_of(run.config.model), shared.newest_metrics()
    name = repo.partition("/")[2]
    results = [
        EvalResult(task, f"latentcode-{task}", f"{task}, split {split}", metric, float(mean),
                   dataset_split=split, task_name=task)
        for split, metric, mean in zip(table["split"], table["metric"], table["mean"], strict=True)
        if math.isfinite(mean) and not is_by_constituent(metric)]
    facts = ModelCardData(license=license, library_name="latentcode", tags=[*TAGS, task, kind],
                          model_name=name, eval_results=results)
    if (run.path / PAGE).is_file():
        return page(facts, (run.path / PAGE).read_text(encoding="utf-8"))
    steps = ", ".join(f"{step:,}" for step in shared.checkpoints())
    files = sorted({file for names in run.provenance.get("registered", {}).values()
                  for file in names.values()})
    needs = f"It needs code that is not shared here, imported first: {', '.join(files)}.\n\n"
    metrics = shared.latest()
    rows = ([metric, *("" if math.isnan(mean) else f"{mean:.4f}" for mean in means)]
            for metric, *means in metrics.itertuples(name=None))
    return page(facts, f"""# {name}

A transformer with {kind} attention, trained on the task {task} with latentcode: {steps} of
{run.config.training.steps:,} updates. Training cannot go on from this copy.

```python
import latentcode as lc

run = lc.load_run("hf://{repo}")
model = run.load_model()       # with TransformerLens' hooks
codes = lc.extract(run, split="ood", n=2_000)
```

{needs if files else ""}## Metrics

{markdown_table(["metric", *metrics.columns], rows)}

## Configuration

```yaml
{to_yaml(run.config).strip()}
```""")


def check_resumable(run: Run, config: RunConfig) -> None:
    """Raise `RunError` unless `config` is the run's own and training can go on with it."""
    check(run.imported is None, f"{run.path} was imported, without the state of the "
          "optimiser and the stream of data: training cannot go on from it", RunError)
    for step in reversed(run.checkpoints()):
        try:
            published = run.load_checkpoint(step).is_published
        except ArtifactError:  # named by `newest_whole`
            continue
        check(not published, f"{run.path} was published, without the state of the optimiser and "
              "of the random generators: training cannot go on from it", RunError)
        break
    mine, other = ({key: value for key, value in flatten(to_dict(each)).items()
                    if key.removeprefix("training.") not in HOW_FIELDS}
                   for each in (run.config, fill_in(config, run.config)))
    different = {key: (mine.get(key), other.get(key)) for key in {**mine, **other}
                 if mine.get(key) != other.get(key)}
    if list(different) == ["training.steps"]:
        # A folder of `wanted` steps whose first ones had another learning rate would be taken for
        # a run that its configuration determines.
        have, wanted = different["training.steps"]
        raise RunError(
            f"training.steps is {wanted}, but {run.path} was created for {have}: its learning rate "
            f"falls over these {have} steps, so that going on to {wanted} would not be a run of "
            f"{wanted} steps; expected {have} with resume, or a new folder for {wanted}")
    words = "; ".join(f"{key}: {have!r} in the run, {wanted!r} asked for"
                      for key, (have, wanted) in different.items())
    check(not different, f"{run.path} was created with another configuration ({words}); resume it "
          "with its own", RunError)


def newest_whole(runs: Sequence[Run]) -> tuple[int | None, list[dict[int, str]]]:
    """Return the newest step of which every run has a whole checkpoint, None if none has any.

    Beside it, for each run, its damaged checkpoints after that step: step -> what is wrong.

    `ArtifactError` where there are checkpoints, and all are damaged: nothing is changed then.
    """
    common = set.intersection(*(set(step_folders(run.path)) for run in runs))
    damaged: list[dict[int, str]] = [{} for _ in runs]
    for step in sorted(common, reverse=True):
        whole = True
        for run, problems in zip(runs, damaged, strict=True):
            try:
                Checkpoint.open(
                    run.checkpoint_path(step), step,
                    run.provenance["config_hash"]).check_files()
            except ArtifactError as error:
                problems[step], whole = str(error), False
        if whole:
            return step, damaged
    for run, problems in zip(runs, damaged, strict=True):
        if problems:
            newest, *others = problems
            before = ("there is none before it" if not others else
                      f"so are those before it ({', '.join(map(str, others))})")
            raise ArtifactError(
                f"{run.path} cannot be resumed: its newest checkpoint, of step {newest}, is "
                f"damaged ({problems[newest]}), and {before}; expected a whole one. Nothing was "
                "changed: train in a new folder, or overwrite this one")
    return None, damaged


def go_back_to(run: Run, step: int | None, damaged: Mapping[int, str]) -> list[str]:
    """Forget what there is after `step` (everything for None) and note who resumes.

    A member of an ensemble may have got a checkpoint that others had not when all were killed.

    damaged  checkpoints after `step` that were found damaged: step -> what is wrong. They are noted
             and set aside, never deleted

    Returns a line for each of these, to be shown.
    """
    lines = []
    for newer, problem in damaged.items():
        path = run.checkpoint_path(newer)
        aside = path.with_name(f"damaged_{path.name}")
        while aside.exists():  # from an earlier time
            aside = aside.with_name(f"{aside.name}_again")
        os.rename(path, aside)
        lines.append(f"the checkpoint of step {newer} is damaged ({problem}); training goes on "
                     f"from step {step or 0}, and the damaged one is kept as {aside}")
    for newer in run.checkpoints():
        if step is None or newer > step:
            run.delete_checkpoint(newer)
    cut_metrics(run.path / METRICS, -1 if step is None else step)
    cut_torn_line(run.path / TIMING)
    note = {"step": step or 0, "time": now(), **environment(run.config.training.device)}
    if damaged:
        note["damaged"] = {str(newer): problem for newer, problem in damaged.items()}
    known = read_json(run.path / PROVENANCE)
    write_json(run.path / PROVENANCE, {**known, "resumed": [*known["resumed"], note]})
    return lines


def zoo_folders() -> dict[str, Path]:
    """Return the folder of each entry of the zoo that is offered, for it has a card, by name."""
    return {path.name: path for path in all_folders() if (path / CARD).is_file()}


def all_folders() -> list[Path]:
    """Return what lies in the zoo, also entries without a card, which only `verify` takes."""
    return sorted(path for path in ZOO.glob("*/") if not path.name.startswith("."))


def folder_of(name_or_path: str | Path) -> Path:
    """Return the folder that a name of the zoo, an address on the hub or a path stands for.

    Text that begins with `hf://` is an address, and what lies there, run or codes, is downloaded.
    A `Path`, and text with a separator such as `./sraven-hyla`, is always a path, and text that
    begins with `zoo:` always a name. Other text is a name of the zoo, or else a folder that
    exists. Where it is both, nothing is chosen silently: `RunError` says how to write either.
    `UnknownNameError` for what is neither lists the names. For an address it raises what
    `latentcode.hub.fetch` raises.
    """
    if isinstance(name_or_path, Path):
        return name_or_path
    text, entries = name_or_path, zoo_folders()
    if is_address(text):
        return fetch(text)
    if text.startswith(ZOO_PREFIX):
        name = text.removeprefix(ZOO_PREFIX)
        check_choice("model of the zoo", name, entries)
        return entries[name]
    if os.sep in text or (os.altsep or os.sep) in text or text in ("", ".", ".."):
        return Path(text)
    exists = Path(text).exists() and not (text in entries and entries[text].samefile(text))
    if text not in entries:
        if not exists:
            raise UnknownNameError("model", text, (
                *entries, f"the path of a run folder, which {text} is not, for it does not exist"))
        return Path(text)
    check(not exists, f"{text} is a model of the zoo, and also in the present folder; expected "
          f"{ZOO_PREFIX}{text} for the model, or .{os.sep}{text} for what is here", RunError)
    return entries[text]


def load_run(
    run: Run | str | Path, *, revision: str | None = None, token: str | bool | None = None
) -> Run:
    """Open a model of the zoo, such as `sraven-hyla`, a run folder, or a run on the hub, such as
    `hf://user/name`; a `Run` is itself.

    Args:
        run: See `folder_of` for what is a name and what a path.
        revision: Of a run on the hub: a branch, a tag or a commit; default: the newest commit.
        token: Of an account that may read it; default: the one that was saved.

    Raises:
        ConfigError: A revision or a token is given for what is not on the hub.
        LatentCodeError: What `folder_of` and `Run.open` raise.
    """
    if isinstance(run, str) and is_address(run):
        return Run.open(fetch(run, kind="run", revision=revision, token=token))
    for name, value in (("revision", revision), ("token", token)):
        check(value is None, f"{name} is given, but {run} is not on the hub; expected "
              "hf://user/name")
    return run if isinstance(run, Run) else Run.open(folder_of(run))
