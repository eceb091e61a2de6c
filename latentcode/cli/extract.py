"""`latentcode extract`: which codes does a trained model compute?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from latentcode.cli.options import OfRun, Sampling, default_is
from latentcode.errors import LatentCodeError


@dataclass(frozen=True, kw_only=True)
class Extract(OfRun, Sampling):
    """Which codes does a trained model compute?

    Example: latentcode extract runs/hyla --out codes/hyla --n 10000 --pairs all

    Runs the model on instances of one split and saves its latent codes. Memory does not grow with
    the number of instances. If interrupted, the same command continues where it stopped.
    """

    inputs: Annotated[Literal["uniform", "fixed_context", "fixed_query"] | None,
                      default_is("as in training")] = None
    """Fuzzy logic: what the instances have in common."""
    residuals: bool = False
    """Also save the residual stream at the queries."""
    untrained: bool = False
    """Use the model's initial weights instead."""
    batch_size: int = 512
    """Instances per forward pass."""

    def run(self) -> None:
        from latentcode.runs.named import load_run
        from latentcode.seeds import checked_seed
        from latentcode.subjects import subject

        run = load_run(self.path)
        arguments = self.arguments(run)
        inputs, task = arguments.pop("inputs", None), run.config.task
        if inputs is not None:
            if task.name != "logic":
                raise LatentCodeError(
                    f"--inputs is {inputs!r}, but task {task.name!r} has no such choice")
            task = replace(task, inputs=inputs)
        self.check_out("meta.json")
        of = subject(run, task, device=arguments.pop("device"))
        arguments["seed"] = checked_seed(arguments["seed"])
        self.save_codes(of.reader(arguments.pop("split"), **arguments),
                        f"instances of {self.split}")
