"""Does a seed stand for the same initial weights as in the version of torch that we pin?"""

from __future__ import annotations

import torch
from packaging.version import Version

OTHER_WEIGHTS = Version(torch.__version__) < Version("2.12")
"""Before torch 2.12 truncated normals are drawn in another way: a seed is another model."""
