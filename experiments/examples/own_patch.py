"""Two patches of one's own: halfway to the source, and what is left of it without its mean.

    latentcode intervene sraven-hyla --import own_patch.py --patch halfway --out results/own
"""

from torch import Tensor

import latentcode as lc


@lc.register_patch("halfway", source="operation+operands")
def halfway(base: Tensor, source: Tensor, problem: lc.Problem) -> Tensor:
    """Halfway from its own to the source's."""
    return (base + source) / 2


@lc.register_patch("without_mean", source="operation+operands", means=True)
def without_mean(base: Tensor, source: Tensor, problem: lc.Problem) -> Tensor:
    """The source's, with the base's rule's mean in place of its own rule's."""
    pairs = problem.pairs
    return source - problem.mean(pairs.source_label) + problem.mean(pairs.base_label)
