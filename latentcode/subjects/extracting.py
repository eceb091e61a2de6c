"""`extract`: which codes does a model compute?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.progress import Progress, watched
from latentcode.subjects.resolving import subject

if TYPE_CHECKING:
    from latentcode.subjects.asked import Model, Problems, Split


@watched("reading codes")
def extract(
    model: Model,
    problems: Problems = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    residuals: bool = False,
    untrained: bool = False,
    step: int | None = None,
    seed: int = 0,
    device: str | None = None,
    batch_size: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> LatentCodes:
    """Run a model over problems, and keep the codes a[:, q, k] of named pairs.

    Beside the labels of a task, its measures of each problem (such as `loss` and `accuracy`) are
    labels, so that codes can be coloured by correctness; beside the columns of prompts, position
    and text of the query's and the key's token, and `next_token`, what the model says comes next.
    Hooks of a model in hand stay active: a code that one of them writes is the code that is read.

    Memory grows with n x layers x pairs x heads, not with the attention matrices; with `out` with
    the labels alone, about 0.2 kB per problem.

    Args:
        model: See `subject`.
        problems: See `subject`; such as `replace(run.config.task, inputs="fixed_context")`.
        split: `train`, `test`, `ood` or `unknown`.
        n: Number of problems; fewer are the first of more; default: 4,096, of prompts all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's; of prompts
            all.
        layers: Layer numbers, or a single one; default: all.
        residuals: Also keep `hook_resid_pre` at the pairs' queries, a control for every probe.
        untrained: Use the initial weights instead, another control.
        step: The checkpoint; default: the newest.
        seed: Seed of the problems; the same problems for every model of a task.
        device: `cpu` or `cuda`; default: cpu.
        batch_size: Problems of one forward pass; the result depends on it by rounding only;
            default: 512, of prompts 32.
        out: A folder to write the codes to while they are read, as `LatentCodes.save` would; the
            result is that folder, opened. Interrupted (Ctrl-C, kill, full disk), the same call goes
            on where it was, out of the folder `out.partial`.
        overwrite: Replace codes that `out` already holds, and unfinished ones of other settings.
        progress: Called with (problems done, n) after every batch.

    Raises:
        LatentCodeError: What `subject` raises, `UnknownNameError` for a pair, layer or split,
            `SplitError` for a split that the task does not offer, `ConfigError` for prompts whose
            tokens or positions cannot be used and for a causal model whose codes look ahead; with
            `out` what `partial_codes` raises.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device, batch_size=batch_size)
    reader = of.reader(
        split, n=of.n_of("n", n, 4_096, split), pairs=pairs, layers=layers, residuals=residuals,
        untrained=untrained, seed=seed)
    return reader.read(out, overwrite=overwrite, progress=progress)
