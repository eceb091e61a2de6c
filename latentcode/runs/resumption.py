"""May training go on in a run's folder, and from which step?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.config import RunConfig, fill_in, flatten, to_dict
from latentcode.config.training import HOW_FIELDS
from latentcode.errors import RunError, check
from latentcode.files.storage import read_json, write_json
from latentcode.runs.folder import PROVENANCE, TIMING
from latentcode.runs.kept_checkpoints import delete_step
from latentcode.runs.metric_file import METRICS, cut_metrics, cut_torn_line

if TYPE_CHECKING:
    from latentcode.runs.run import Run


def check_resumable(run: Run, config: RunConfig) -> None:
    """Raise `RunError` unless training can go on with `config`; see `Run.check_config`."""
    check(run.imported is None, f"{run.path} was imported, without the state of the "
          "optimiser and the stream of data: training cannot go on from it", RunError)
    check(not run.checkpoints() or not run.load_checkpoint().is_published, f"{run.path} was "
          "published, without the state of the optimiser and of the random generators: "
          "training cannot go on from it", RunError)
    mine, other = flatten(to_dict(run.config)), flatten(
        to_dict(fill_in(config, run.config)))
    for plain in (mine, other):
        for name in HOW_FIELDS:
            plain.pop(f"training.{name}", None)
    different = [f"{key}: {mine.get(key)!r} in the run, {other.get(key)!r} asked for"
                 for key in {**mine, **other} if mine.get(key) != other.get(key)]
    check(not different, f"{run.path} was created with another configuration "
          f"({'; '.join(different)}); resume it with its own", RunError)


def go_back_to(run: Run, step: int | None) -> None:
    """Forget what there is after `step` and note who resumes; see `Run.prepare_resumption`."""
    from latentcode.files.provenance import environment, now

    for newer in run.checkpoints():
        if step is None or newer > step:
            delete_step(run.path, newer)
    cut_metrics(run.path / METRICS, -1 if step is None else step)
    cut_torn_line(run.path / TIMING)
    note = {"step": step or 0, "time": now(), **environment(run.config.training.device)}
    known = read_json(run.path / PROVENANCE)
    write_json(run.path / PROVENANCE, {**known, "resumed": [*known["resumed"], note]})
