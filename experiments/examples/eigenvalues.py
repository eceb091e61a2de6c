"""What do the eigenvalues of attention tell? Features and a probe of one's own.

    latentcode eigenvalues sraven-hyla --import eigenvalues.py --out results/eigenvalues

A head's pattern is a graph of tokens, and its Laplacian has eigenvalues, as in LapEigvals
(Binkowski et al. 2025, arXiv:2502.17598), where a logistic probe reads hallucinations from them.
"""

import numpy as np
import torch
from matplotlib.axes import Axes
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latentcode as lc
from latentcode.probes.registered import ProbeResult


@lc.register_features("laplacian")
def laplacian(codes: torch.Tensor) -> torch.Tensor:
    """Eigenvalues of L = D - W with W = (|A| + |A|^T) / 2 and D its degrees: [B, H (T - 1)].

    The smallest is always 0; what is left of it is rounding, which a probe would scale up.
    """
    weights = codes.float().abs()  # [B, H, T, T]; the codes of linear attention have signs
    weights = (weights + weights.mT) / 2
    return torch.linalg.eigvalsh(weights.sum(-1).diag_embed() - weights)[..., 1:].flatten(1)


def draw(result: ProbeResult, axes: Axes) -> None:
    """Draw how far the eigenvalues are above each control, with 95 % intervals."""
    rows = result.contrasts.table.query("features == 'laplacian'")
    lines = range(len(rows))
    axes.axvline(0.0, color="0.5", linewidth=1.0)
    axes.hlines(lines, rows["low"], rows["high"])
    axes.plot(rows["value"], lines, "o")
    axes.set_yticks(lines, [f"{row.label}, layer {row.layer}, less {row.against}"
                            for row in rows.itertuples()])
    axes.set_xlabel("difference in accuracy")


def say(result: ProbeResult) -> str:
    """Say how often the probe is right where it is best."""
    rows = result.table.query("features == 'laplacian'")
    best = rows.sort_values("value").iloc[-1]
    return (f"The eigenvalues of layer {best['layer']} tell {best['label']} in "
            f"{best['value']:.0%} of {best['n']} problems.")


@lc.register_probe("eigenvalues", features=("laplacian", "code"), columns="accuracy",
                   figure=draw, sentence=say)
def eigenvalues(train: lc.Points, heldout: lc.Points, *, c: float = 0.1) -> np.ndarray:
    """Do the eigenvalues of a pattern's Laplacian tell the label?

    c  inverse of the penalty of the logistic probe
    """
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=1_000))
    return np.equal(probe.fit(train.x, train.y).predict(heldout.x), heldout.y)
