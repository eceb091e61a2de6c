"""What operations do codes generate?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.value_networks.networks import value_networks as value_networks
    from latentcode.probes.value_networks.result import ValueNetworksResult as ValueNetworksResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
