"""Do the parts of a batch stay together when it is indexed, moved and joined?"""

from __future__ import annotations

import pytest
import torch

from latentcode.errors import SplitError
from latentcode.tasks.base import Batch


def batch_of(n: int, split: str = "ood") -> Batch:
    counter = torch.arange(n)
    return Batch(counter[:, None, None].float(), counter[:, None], counter,
                 {"terms": counter[:, None] * 10}, split)


def test_a_batch_is_indexed_in_all_its_parts() -> None:
    batch = batch_of(6)
    assert len(batch) == 6
    assert "6 instances of ood" in repr(batch)
    for index in (slice(1, 3), torch.tensor([1, 2]), torch.arange(6).remainder(5).clamp(max=2) > 0):
        part = batch[index]
        picked = torch.arange(6)[index]
        assert part.split == "ood"
        assert part.inputs.flatten().tolist() == picked.tolist()
        assert part.targets.flatten().tolist() == picked.tolist()
        assert part.combination.tolist() == picked.tolist()
        assert part.info["terms"].flatten().tolist() == (10 * picked).tolist()


def test_batches_of_one_split_can_be_joined() -> None:
    batch = batch_of(5)
    joined = Batch.cat([batch[:2], batch[2:]])
    assert joined.split == "ood"
    for mine, whole in ((joined.inputs, batch.inputs), (joined.targets, batch.targets),
                        (joined.combination, batch.combination),
                        (joined.info["terms"], batch.info["terms"])):
        torch.testing.assert_close(mine, whole)
    with pytest.raises(SplitError, match="ood, train"):
        Batch.cat([batch, batch_of(2, "train")])
