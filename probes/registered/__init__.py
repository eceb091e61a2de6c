"""Probes that are one function: registered by a name, they become questions like all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.probes.registered.points import Points as Points
    from latentcode.probes.registered.registering import register_probe as register_probe
    from latentcode.probes.registered.result import ProbeResult as ProbeResult

__getattr__, __dir__, __all__ = lazy_module(__name__)
