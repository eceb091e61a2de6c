"""What does a code say, and what does it cause? Decoding with controls, and projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.alignment.matching import fit_rotation as fit_rotation
    from latentcode.probes.alignment.matching import linear_cka as linear_cka
    from latentcode.probes.alignment.matching import match_heads as match_heads
    from latentcode.probes.alignment.matching import procrustes_distance as procrustes_distance
    from latentcode.probes.alignment.of_codes import AlignmentResult as AlignmentResult
    from latentcode.probes.alignment.of_codes import align as align
    from latentcode.probes.common.comparing import align_runs as align_runs
    from latentcode.probes.common.comparing import similarity_of_run as similarity_of_run
    from latentcode.probes.common.comparing import topography_of_runs as topography_of_runs
    from latentcode.probes.common.figures import ScatterCell as ScatterCell
    from latentcode.probes.common.figures import decoding_figure as decoding_figure
    from latentcode.probes.common.figures import scatter_figure as scatter_figure
    from latentcode.probes.common.results import DecodingResult as DecodingResult
    from latentcode.probes.decoding.logistic import LogisticProbe as LogisticProbe
    from latentcode.probes.decoding.logistic import fit_probe as fit_probe
    from latentcode.probes.decoding.of_codes import decode as decode
    from latentcode.probes.decoding.of_run import probe as probe
    from latentcode.probes.projection.cache import CachedProjection as CachedProjection
    from latentcode.probes.projection.methods import FittedProjection as FittedProjection
    from latentcode.probes.projection.methods import Projection as Projection
    from latentcode.probes.projection.methods import fit_projection as fit_projection
    from latentcode.probes.projection.methods import label_quality as label_quality
    from latentcode.probes.projection.methods import project as project
    from latentcode.probes.projection.methods import tsne as tsne
    from latentcode.probes.projection.of_codes import ProjectionResult as ProjectionResult
    from latentcode.probes.projection.of_codes import project_codes as project_codes
    from latentcode.probes.prompts.decoding import probe_prompts as probe_prompts
    from latentcode.probes.prompts.interventions import patch_prompts as patch_prompts
    from latentcode.probes.similarity.of_codes import SimilarityResult as SimilarityResult
    from latentcode.probes.similarity.of_codes import concentration as concentration
    from latentcode.probes.similarity.of_codes import label_similarity as label_similarity
    from latentcode.probes.topography.generalization import rank_correlation as rank_correlation
    from latentcode.probes.topography.of_codes import TopographyResult as TopographyResult
    from latentcode.probes.topography.of_codes import (
        topographic_similarity as topographic_similarity,
    )
    from latentcode.probes.value_networks.of_codes import mean_networks as mean_networks
    from latentcode.probes.value_networks.result import ValueNetworkResult as ValueNetworkResult

# scikit-learn and matplotlib take a second to import; `latentcode --help` shall not wait.
__getattr__, __dir__, __all__ = lazy_module(__name__)
