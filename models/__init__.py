"""What computes? The attention core, the hooked transformer, the hypernetwork view.

Names are loaded on first use, so that importing the configuration does not import torch.
"""

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.models.attention import apply_value_network as apply_value_network
    from latentcode.models.attention import attention_scores as attention_scores
    from latentcode.models.attention import normalize as normalize
    from latentcode.models.config import ATTENTION_KINDS as ATTENTION_KINDS
    from latentcode.models.config import ModelConfig as ModelConfig
    from latentcode.models.config import kind_of as kind_of
    from latentcode.models.config import with_kind as with_kind
    from latentcode.models.hypernetwork import ValueNetwork as ValueNetwork
    from latentcode.models.hypernetwork import identity_error as identity_error
    from latentcode.models.hypernetwork import value_network as value_network
    from latentcode.models.pretrained import Layout as Layout
    from latentcode.models.pretrained import layout as layout
    from latentcode.models.pretrained import load_pretrained as load_pretrained
    from latentcode.models.transformer import HookedTransformer as HookedTransformer

__getattr__, __dir__, __all__ = lazy_module(__name__)
