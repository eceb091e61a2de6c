"""How is the effect of writing a source's activation estimated? (d step / d a) (a_source - a),
where

    gradient  the derivative is taken at the base: attribution patching
    path      it is the mean over points on the way from the base's activations at all places
              of the site to the source's (integrated gradients): the estimates sum to the effect of
              writing all of them, up to the number of points
"""

from __future__ import annotations

METHODS = ("path", "gradient")
"""Sets are made in the order of the first."""
