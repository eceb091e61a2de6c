"""Agreement with the paper's code: its files, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.official.files import CONVERSION as CONVERSION
    from latentcode.official.files import OfficialFile as OfficialFile
    from latentcode.official.files import export_flax as export_flax
    from latentcode.official.files import import_flax as import_flax
    from latentcode.official.files import infer_task as infer_task
    from latentcode.official.files import read_held_out as read_held_out
    from latentcode.official.files import read_npz as read_npz

__getattr__, __dir__, __all__ = lazy_module(__name__)
