"""What is a run, at a glance? Its line of text and its table, as Python and Jupyter show them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from latentcode.models.config import kind_of

if TYPE_CHECKING:
    from latentcode.runs.run import Run


def in_a_line(run: Run) -> str:
    """Return where a run is, what it is and how far it got."""
    facts = _facts(run)
    return (f"Run({run.loaded_from or facts['folder']!r}: {facts['attention']} on "
            f"{facts['task']}, step {facts['steps']})")


def as_html(run: Run) -> str:
    """Return the facts of a run, its newest metrics and their figure over the steps."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>"
                   for k, v in _facts(run).items())
    latest, constituents = run.latest(), run.latest(by_constituent=True)
    picture = run.figure().to_html("metrics over steps") if len(latest) else ""
    table = constituents.to_html(na_rep="") if len(constituents) else ""
    return f"<b>Run</b><table>{rows}</table>{latest.to_html(na_rep='')}{picture}{table}"


def _facts(run: Run) -> dict[str, str]:
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
