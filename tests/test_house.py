"""Does the set-up of the tests do what it says?"""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from latentcode.models.attention import rms_head


def test_shapes_in_signatures_are_enforced() -> None:
    assert rms_head(torch.ones(2, 3, 4, 4)).shape == (2, 3, 4, 4)
    with pytest.raises(TypeCheckError, match="B H Q K"):
        rms_head(torch.ones(2, 3, 4))


def test_each_worker_has_one_torch_thread() -> None:
    assert torch.get_num_threads() == 1
