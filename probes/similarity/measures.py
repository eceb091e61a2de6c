"""How similar are mean codes, in which order do they stand, and how many heads does a code use?"""

from __future__ import annotations

import numpy as np

from latentcode.errors import ProbeError, check
from latentcode.probes.common.features import ROUNDING

ONE_HOT = 0.9
"""A code is one-hot when its largest head holds at least this share of sum_h |a_h|."""


def cosine_matrix(means: np.ndarray, centring: str = "raw") -> np.ndarray:
    """Return m_a . m_b / (|m_a| |m_b|) of means [..., class, d], [..., class, class].

    `centred` first takes away the mean over the classes. NaN where a mean is zero, or differs
    from that of the classes by rounding only: the code does not vary then, such as that of a
    token to itself in the first layer.
    """
    least = ROUNDING * np.linalg.norm(means, axis=-1, keepdims=True)
    if centring == "centred":
        # nanmean would warn of a class that a replicate lacks in all components.
        present = np.isfinite(means)
        total = np.where(present, means, 0.0).sum(axis=-2, keepdims=True)
        means = means - total / present.sum(axis=-2, keepdims=True)
    length = np.linalg.norm(means, axis=-1, keepdims=True)
    unit = means / np.where((length > least) & (length > 0), length, np.nan)
    return np.asarray(unit @ np.swapaxes(unit, -1, -2))


def cluster_order(cosines: np.ndarray) -> np.ndarray:
    """Return the order of classes in which similar ones stand together, int [class].

    Average linkage on 1 - cosine, with the optimal ordering of leaves (Bar-Joseph et al. 2001).
    Undefined cosines count as 0.
    """
    # Whoever opens a saved result imports this module, and most never order anything.
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    distance = 1.0 - np.nan_to_num(cosines)
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(np.clip((distance + distance.T) / 2.0, 0.0, None), checks=False)
    return np.asarray(leaves_list(optimal_leaf_ordering(linkage(condensed, "average"), condensed)))


def concentration(x: np.ndarray) -> dict[str, np.ndarray]:
    """How many heads does each code use? Measures per instance, each [N], of codes x [N, H].

    participation_ratio  (sum_h |a_h|)^2 / (H sum_h a_h^2): 1 / H when one head does it all, 1 when
                         all heads are equal in size, 2 / pi = 0.64 for independent Gaussian heads
                         (Treves and Rolls 1991)
    sparsity             (sqrt(H) - sum|a| / sqrt(sum a^2)) / (sqrt(H) - 1): from 0, all equal, to
                         1, one head (Hoyer 2004); 0 for a single head
    largest_share        max_h |a_h| / sum_h |a_h|
    one_hot              1 where the largest share is at least 0.9, else 0

    `ProbeError` for codes that are all zero.
    """
    size = np.abs(x)
    total, largest = size.sum(axis=1), size.max(axis=1)
    zero = int((total == 0).sum())
    check(zero == 0, f"{zero} of {len(x)} codes are zero in all heads; expected some score in "
          "each", ProbeError)
    n_heads = x.shape[1]
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    ratio = (total / largest) ** 2 / np.square(size / largest[:, None]).sum(axis=1)
    spread = np.sqrt(n_heads) - 1.0
    return {"participation_ratio": ratio / n_heads,
            "sparsity": (np.sqrt(n_heads) - np.sqrt(ratio)) / (spread or 1.0),
            "largest_share": largest / total,
            "one_hot": (largest / total >= ONE_HOT).astype(np.float64)}
