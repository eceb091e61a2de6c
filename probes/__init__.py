"""What does a code say, and what does it cause? Decoding with controls, and projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.decoding import decode as decode
    from latentcode.probes.figures import ScatterCell as ScatterCell
    from latentcode.probes.figures import decoding_figure as decoding_figure
    from latentcode.probes.figures import scatter_figure as scatter_figure
    from latentcode.probes.logistic import LogisticProbe as LogisticProbe
    from latentcode.probes.logistic import fit_probe as fit_probe
    from latentcode.probes.probing import probe as probe
    from latentcode.probes.projection import Projection as Projection
    from latentcode.probes.projection import project as project
    from latentcode.probes.projection import tsne as tsne
    from latentcode.probes.results import DecodingResult as DecodingResult

# scikit-learn and matplotlib take a second to import; `latentcode --help` shall not wait.
__getattr__, __dir__, __all__ = lazy_module("latentcode.probes", {
    "latentcode.probes.decoding": ["decode"],
    "latentcode.probes.results": ["DecodingResult"],
    "latentcode.probes.logistic": ["LogisticProbe", "fit_probe"],
    "latentcode.probes.figures": ["ScatterCell", "decoding_figure", "scatter_figure"],
    "latentcode.probes.probing": ["probe"],
    "latentcode.probes.projection": ["Projection", "project", "tsne"],
})
