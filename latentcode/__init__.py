"""latentcode: the latent codes of attention, trained, read out, decoded and written back.

    import latentcode as lc

    run = lc.train(lc.preset("small", task="logic", kind="hyla"), "runs/hyla")
    codes = lc.extract(run, split="ood", n=2_000)
    result = lc.decode(run)

Names are loaded on first use, so that importing the package imports no torch.
"""

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes as LatentCodes
    from latentcode.codes.features import register_features as register_features
    from latentcode.codes.reader import instances as instances
    from latentcode.config import LogicConfig as LogicConfig
    from latentcode.config import RunConfig as RunConfig
    from latentcode.config import SravenConfig as SravenConfig
    from latentcode.config import TrainingConfig as TrainingConfig
    from latentcode.config import load_config as load_config
    from latentcode.errors import LatentCodeError as LatentCodeError
    from latentcode.files.provenance import __version__ as __version__
    from latentcode.models.config import ModelConfig as ModelConfig
    from latentcode.models.hypernetwork import value_network as value_network
    from latentcode.models.pretrained import load_pretrained as load_pretrained
    from latentcode.models.registering import register_kind as register_kind
    from latentcode.models.registering import register_nonlinearity as register_nonlinearity
    from latentcode.models.registering import register_normalization as register_normalization
    from latentcode.models.registering import register_value_network as register_value_network
    from latentcode.models.transformer import HookedTransformer as HookedTransformer
    from latentcode.presets import preset as preset
    from latentcode.probes.alignment import align as align
    from latentcode.probes.attribution import attribute as attribute
    from latentcode.probes.common.results import load_result as load_result
    from latentcode.probes.das import das as das
    from latentcode.probes.decoding import decode as decode
    from latentcode.probes.generation import generate as generate
    from latentcode.probes.heads import heads as heads
    from latentcode.probes.interventions import Bench as Bench
    from latentcode.probes.interventions import ByHand as ByHand
    from latentcode.probes.interventions import Patch as Patch
    from latentcode.probes.interventions import Problem as Problem
    from latentcode.probes.interventions import intervene as intervene
    from latentcode.probes.interventions import register_patch as register_patch
    from latentcode.probes.knn import knn as knn
    from latentcode.probes.knn_purity import knn_purity as knn_purity
    from latentcode.probes.model_checks import check_model as check_model
    from latentcode.probes.projection import project as project
    from latentcode.probes.registered import Points as Points
    from latentcode.probes.registered import register_probe as register_probe
    from latentcode.probes.similarity import similarity as similarity
    from latentcode.probes.topography import topography as topography
    from latentcode.probes.value_networks import value_networks as value_networks
    from latentcode.prompts import Prompts as Prompts
    from latentcode.prompts.answers import score_prompts as score_prompts
    from latentcode.prompts.prompt_tasks import make_prompts as make_prompts
    from latentcode.runs import Run as Run
    from latentcode.runs.run import load_run as load_run
    from latentcode.subjects import extract as extract
    from latentcode.subjects import subject as subject
    from latentcode.tasks import Batch as Batch
    from latentcode.tasks import Task as Task
    from latentcode.tasks import make_counterfactuals as make_counterfactuals
    from latentcode.tasks import make_task as make_task
    from latentcode.tasks import register_task as register_task
    from latentcode.tasks.pairs import Pair as Pair
    from latentcode.training import evaluate as evaluate
    from latentcode.training import train as train
    from latentcode.zoo import list_models as list_models
    from latentcode.zoo import load_codes as load_codes
    from latentcode.zoo import load_model as load_model

__getattr__, __dir__, __all__ = lazy_module(__name__)
