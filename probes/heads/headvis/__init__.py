"""HeadVis: what heads attend to, as the JSON tree that HeadVis and Neuronpedia show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.heads.headvis.checking import check_headvis as check_headvis
    from latentcode.probes.heads.headvis.writing import write_headvis as write_headvis

__getattr__, __dir__, __all__ = lazy_module(__name__)
