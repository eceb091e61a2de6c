"""What does a code say, and what does it cause? Decoding with controls, and projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.alignment import AlignmentResult as AlignmentResult
    from latentcode.probes.alignment import align as align
    from latentcode.probes.comparing import align_runs as align_runs
    from latentcode.probes.comparing import similarity_of_run as similarity_of_run
    from latentcode.probes.comparing import topography_of_runs as topography_of_runs
    from latentcode.probes.decoding import decode as decode
    from latentcode.probes.figures import ScatterCell as ScatterCell
    from latentcode.probes.figures import decoding_figure as decoding_figure
    from latentcode.probes.figures import scatter_figure as scatter_figure
    from latentcode.probes.generalization import rank_correlation as rank_correlation
    from latentcode.probes.logistic import LogisticProbe as LogisticProbe
    from latentcode.probes.logistic import fit_probe as fit_probe
    from latentcode.probes.matching import fit_rotation as fit_rotation
    from latentcode.probes.matching import linear_cka as linear_cka
    from latentcode.probes.matching import match_heads as match_heads
    from latentcode.probes.matching import procrustes_distance as procrustes_distance
    from latentcode.probes.probing import probe as probe
    from latentcode.probes.projecting import ProjectionResult as ProjectionResult
    from latentcode.probes.projecting import project_codes as project_codes
    from latentcode.probes.projection import FittedProjection as FittedProjection
    from latentcode.probes.projection import Projection as Projection
    from latentcode.probes.projection import fit_projection as fit_projection
    from latentcode.probes.projection import label_quality as label_quality
    from latentcode.probes.projection import project as project
    from latentcode.probes.projection import tsne as tsne
    from latentcode.probes.projection_cache import CachedProjection as CachedProjection
    from latentcode.probes.prompt_patching import patch_prompts as patch_prompts
    from latentcode.probes.prompt_probing import probe_prompts as probe_prompts
    from latentcode.probes.results import DecodingResult as DecodingResult
    from latentcode.probes.similarity import SimilarityResult as SimilarityResult
    from latentcode.probes.similarity import concentration as concentration
    from latentcode.probes.similarity import label_similarity as label_similarity
    from latentcode.probes.topography import TopographyResult as TopographyResult
    from latentcode.probes.topography import topographic_similarity as topographic_similarity
    from latentcode.probes.value_network_result import ValueNetworkResult as ValueNetworkResult
    from latentcode.probes.value_networks import mean_networks as mean_networks

# scikit-learn and matplotlib take a second to import; `latentcode --help` shall not wait.
__getattr__, __dir__, __all__ = lazy_module(__name__)
