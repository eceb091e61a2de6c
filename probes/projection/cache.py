"""Projections that were computed once: kept on disk under a hash of all that determines them.

An entry is `{key}.safetensors`, the coordinates, and `{key}.json`, their settings, quality and
checksum. The key is the SHA-256 of the points, the method, its settings and the versions of what
computes it, so that nothing is ever out of date; an entry may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.errors import ArtifactError, check
from latentcode.files.cache import default_cache
from latentcode.files.formats import header, read_checked
from latentcode.files.provenance import package_version, software
from latentcode.files.storage import checksum, read_tensors, write_json, write_tensors
from latentcode.probes.projection.methods import (
    FittedProjection,
    Projection,
    fit_projection,
    reduced_settings,
    settings_of,
)
from latentcode.progress import Progress

FORMAT = "latentcode.cached_projection"
KEYS = {"format", "format_version", "sha256", "method", "settings", "quality"}
PACKAGES: tuple[str, ...] = ("scikit-learn", "scipy", "openTSNE", "umap-learn", "numba",
                             "pynndescent")
"""Packages whose version may change coordinates, beside those of `software`."""


class CachedProjection:
    """`fit_projection`, whose result and whose transforms are looked up before they are computed.

    cache     folder; default: `default_cache()`. It is made when there is something to keep
    progress  of the fit; not called when nothing has to be fitted

    Method and settings have to exist, but nothing is computed before it is asked for: where the
    fitted points and the transformed ones are in the cache, nothing is fitted. An entry that is
    damaged is computed again, and one that cannot be written is not kept; both with a warning.
    """

    def __init__(
        self, x: np.ndarray, method: str = "tsne", *, seed: int = 0,
        cache: str | Path | None = None, progress: Progress | None = None, **settings: Any,
    ) -> None:
        self.x, self.method = np.ascontiguousarray(x, dtype=np.float64), method
        self.settings = settings_of(
            method, seed=seed, **{**reduced_settings(method, len(self.x)), **settings})
        self.folder = default_cache() if cache is None else Path(cache)
        self.progress = progress

    @cached_property
    def projection(self) -> Projection:
        """The points that it is fitted on, in two dimensions."""
        key = self._key(self.x)
        known = self._read(key)
        return self._keep(key, self._fitted.projection) if known is None else known

    def transform(self, x: np.ndarray) -> Projection:
        """Return other points among the fitted ones; see `FittedProjection.transform`."""
        x = np.ascontiguousarray(x, dtype=np.float64)
        key = self._key(self.x, x)
        known = self._read(key)
        return self._keep(key, self._fitted.transform(x)) if known is None else known

    @cached_property
    def _fitted(self) -> FittedProjection:
        return fit_projection(self.x, self.method, progress=self.progress, **self.settings)

    def _key(self, *arrays: np.ndarray) -> str:
        described = {
            "method": self.method, "settings": self.settings, "format": header(FORMAT),
            "shapes": [array.shape for array in arrays], "software": software(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "machine": [platform.system(), platform.machine()]}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _read(self, key: str) -> Projection | None:
        path = self.folder / f"{key}.json"
        if not path.exists():  # it is written last
            return None
        try:
            data = read_checked(path, FORMAT, KEYS, "settings", (f"{key}.safetensors",))
            tensors = read_tensors(self.folder / f"{key}.safetensors")
            check(set(tensors) == {"coordinates"}
                  and tensors["coordinates"].dtype == np.float64
                  and tensors["coordinates"].shape[1:] == (2,)
                  and isinstance(data["quality"], dict) and data["method"] == self.method,
                  f"{path} does not describe a projection by {self.method}", ArtifactError)
        except ArtifactError as error:
            warnings.warn(f"a cached projection is computed again: {error}", stacklevel=2)
            return None
        return Projection(tensors["coordinates"], self.method, data["settings"], data["quality"])

    def _keep(self, key: str, projection: Projection) -> Projection:
        tensors = self.folder / f"{key}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_tensors(tensors, {"coordinates": projection.coordinates})
            write_json(self.folder / f"{key}.json", {
                **header(FORMAT), "sha256": {tensors.name: checksum(tensors)},
                "method": projection.method, "settings": dict(projection.settings),
                "quality": dict(projection.quality)})
        except (ArtifactError, OSError) as error:
            warnings.warn(f"a projection is not kept: {error}", stacklevel=2)
        return projection
