"""What computes? The attention core, the hooked transformer, the hypernetwork view.

Names are loaded on first use, so that importing the configuration does not import torch.
"""

from latentcode.lazy import lazy_module

__getattr__, __dir__, __all__ = lazy_module(__name__, {
    "latentcode.models.config": (
        "ATTENTION_KINDS", "ModelConfig", "kind_of", "with_kind"),
    "latentcode.models.transformer": ("HookedTransformer",),
    "latentcode.models.hypernetwork": ("ValueNetwork", "value_network"),
    "latentcode.models.pretrained": ("Layout", "identity_error", "layout", "load_pretrained"),
    "latentcode.models.attention": (
        "apply_value_network", "attention_scores", "normalize"),
})
