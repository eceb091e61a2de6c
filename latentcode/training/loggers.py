"""Metrics on other people's dashboards: TensorBoard and W&B, beside `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from latentcode.config import to_dict
from latentcode.errors import TrainingError, check, check_choice
from latentcode.metrics import Metric, is_by_constituent
from latentcode.runs import Run

LoggerName = Literal["tensorboard", "wandb"]
LOGGERS: tuple[LoggerName, ...] = ("tensorboard", "wandb")
Logger = Callable[[int, str, Mapping[str, Metric]], None]
"""Takes a step, a split and the metrics of the split at that step."""


def tag(split: str, name: str) -> str:
    """Return what a metric is called; what precedes the slash is a section of a dashboard."""
    return f"{split} by constituent/{name}" if is_by_constituent(name) else f"{split}/{name}"


def check_loggers(names: Sequence[str]) -> None:
    """Raise `ConfigError` for an unknown logger, or for one whose library is not installed."""
    for name in names:
        check_choice("logger", name, LOGGERS)
        spec = find_spec(name)
        # A folder of that name in the working directory (W&B makes one) is no library.
        check(spec is not None and spec.origin is not None,
              f"logger {name!r} needs the package {name}, which is not installed: "
              f"pip install 'latentcode[track]'")


@contextmanager
def open_logger(name: str, run: Run, step: int) -> Iterator[Logger]:
    """Yield a logger that writes below the run folder, and close it afterwards.

    TensorBoard gets scalars named by `tag`, W&B values over `step` in project `latentcode`
    (WANDB_MODE=offline works).

    Args:
        name: One of `LOGGERS`.
        run: The run that is logged.
        step: Where training starts or resumes: what a dashboard holds beyond it is superseded.
    """
    if name == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(run.path / "tensorboard"),
                           purge_step=step + 1 if step else None) as writer:
            def add_scalars(step: int, split: str, metrics: Mapping[str, Metric]) -> None:
                for name, metric in metrics.items():
                    writer.add_scalar(tag(split, name), metric.mean, step)

            yield add_scalars
        return
    import wandb

    try:
        session = wandb.init(
            project="latentcode", name=run.name, id=run.id, resume="allow",
            config=to_dict(run.config), dir=str(run.path),
            settings=wandb.Settings(console="off", silent=True))
    except wandb.Error as error:
        raise TrainingError(f"W&B cannot start: {error}; log in with `wandb login`, or set "
                            "WANDB_MODE=offline") from error
    # Its own counter may not go back, ours does when a run is resumed from a checkpoint.
    session.define_metric("*", step_metric="step")
    try:
        yield lambda step, split, metrics: session.log(
            {"step": step, **{tag(split, name): metric.mean for name, metric in metrics.items()}})
    finally:
        session.finish()
