"""What is shared of a run? What `publish` copies, its results, and a model card."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from latentcode.config import to_yaml
from latentcode.figures.markdown import markdown_table
from latentcode.hub.files import PAGE, PICTURES
from latentcode.hub.page import TAGS, page
from latentcode.metrics import is_by_constituent
from latentcode.models.config import kind_of
from latentcode.runs.folder import CARD, RESULTS

if TYPE_CHECKING:
    from latentcode.runs.run import Run


def copy_to_share(run: Run, folder: Path, step: int | Sequence[int] | None) -> Run:
    """Copy into `folder` what is shared of a run; see `Run.push_to_hub`."""
    shared = run.publish(folder, step=step)
    if (run.path / CARD).is_file():
        shutil.copyfile(run.path / CARD, shared.path / CARD)
    if (run.path / RESULTS).is_dir():
        left_out = shutil.ignore_patterns(".*", *(f"*{ending}" for ending in PICTURES))
        shutil.copytree(run.path / RESULTS, shared.path / RESULTS, ignore=left_out)
    return shared


def model_card(run: Run, shared: Run, repo: str, license: str | None) -> str:
    """Return the page of a run on the hub: its card where it has one, or else what is known of it.

    shared  what is pushed of it
    """
    from huggingface_hub import EvalResult, ModelCardData

    task, table = run.config.task.name, shared.newest_metrics()
    results = [
        EvalResult(task, f"latentcode-{task}", f"{task}, split {split}", metric, float(mean),
                   dataset_split=split, task_name=task)
        for split, metric, mean in zip(table["split"], table["metric"], table["mean"], strict=True)
        if math.isfinite(mean) and not is_by_constituent(metric)]
    written = run.path / PAGE
    body = written.read_text(encoding="utf-8") if written.is_file() else _body(shared, repo)
    return page(ModelCardData(
        license=license, library_name="latentcode", tags=[*TAGS, task, kind_of(run.config.model)],
        model_name=repo.partition("/")[2], eval_results=results), body)


def _body(run: Run, repo: str) -> str:
    name, latest = f"hf://{repo}", run.latest()
    steps = ", ".join(f"{step:,}" for step in run.checkpoints())
    table = markdown_table(["metric", *latest.columns], (
        [metric, *("" if math.isnan(mean) else f"{mean:.4f}" for mean in row)]
        for metric, *row in latest.itertuples(name=None)))
    own = sorted({file for names in run.provenance.get("registered", {}).values()
                  for file in names.values()})
    return "\n\n".join([
        f"# {repo.partition('/')[2]}",
        f"A transformer with {kind_of(run.config.model)} attention, trained on the task "
        f"{run.config.task.name} with latentcode: {steps} of {run.config.training.steps:,} "
        "updates.",
        "## Use", f'```python\nimport latentcode as lc\n\nrun = lc.load_run("{name}")\n'
        "model = run.load_model()       # with TransformerLens' hooks\n"
        'codes = lc.extract(run, split="ood", n=2_000)\n```',
        *([f"It needs code that is not shared here, imported first: {', '.join(own)}."] if own
          else []),
        "## Metrics", "The newest means of each split." if len(latest) else "None were recorded.",
        *([table] if len(latest) else []),
        "## Configuration", f"```yaml\n{to_yaml(run.config).strip()}\n```",
        "Training cannot go on from this copy: the state of the optimiser and of the random "
        "generators is not in it."])


__all__ = ["copy_to_share", "model_card"]
