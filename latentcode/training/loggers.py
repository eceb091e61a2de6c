"""Metrics on other people's dashboards: TensorBoard and W&B, beside `metrics.jsonl`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from latentcode.config import to_dict
from latentcode.errors import ConfigError, TrainingError, check, check_choice
from latentcode.metrics import Metric, is_by_constituent
from latentcode.runs import Run

LoggerName = Literal["tensorboard", "wandb"]
LOGGERS: tuple[LoggerName, ...] = ("tensorboard", "wandb")


class Logger(ABC):
    """Somewhere for metrics to go."""

    @abstractmethod
    def log(self, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
        """Take the metrics of one split at one step."""

    @abstractmethod
    def close(self) -> None:
        """Write what is still in memory."""


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
              f"pip install 'latentcode[track]'", ConfigError)


@contextmanager
def open_logger(name: str, run: Run, step: int) -> Iterator[Logger]:
    """Yield a logger that writes below the run folder and is closed afterwards.

    step  where training starts or resumes: what a dashboard holds beyond it is superseded
    """
    logger = _TensorBoard(run, step) if name == "tensorboard" else _WeightsAndBiases(run)
    try:
        yield logger
    finally:
        logger.close()


class _TensorBoard(Logger):
    """Scalars, named by `tag`, in `tensorboard/`."""

    def __init__(self, run: Run, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run.path / "tensorboard"),
                                    purge_step=step + 1 if step else None)

    def log(self, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
        for name, metric in metrics.items():
            self.writer.add_scalar(tag(split, name), metric.mean, step)

    def close(self) -> None:
        self.writer.close()


class _WeightsAndBiases(Logger):
    """Values, named by `tag`, over `step`, in project `latentcode`; WANDB_MODE=offline works."""

    def __init__(self, run: Run) -> None:
        import wandb

        try:
            self.run = wandb.init(
                project="latentcode", name=run.name, id=run.id, resume="allow",
                config=to_dict(run.config), dir=str(run.path),
                settings=wandb.Settings(console="off", silent=True))
        except wandb.Error as error:
            raise TrainingError(f"W&B cannot start: {error}; log in with `wandb login`, or set "
                                "WANDB_MODE=offline") from error
        # Its own counter may not go back, ours does when a run is resumed from a checkpoint.
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
        self.run.log({"step": step, **{tag(split, name): m.mean for name, m in metrics.items()}})

    def close(self) -> None:
        self.run.finish()


__all__ = ["LOGGERS", "Logger", "LoggerName", "check_loggers", "open_logger"]
