"""Masks that are drawn ahead: unchanged in law, each member's its own, and the same again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from latentcode.config import RunConfig
from latentcode.models.config import ModelConfig
from latentcode.training.ensemble import Ensemble, can_be_drawn_ahead, draw_masks
from latentcode.training.state import CHUNK

CONFIG = ModelConfig(n_layers=3, attention_dropout=0.25)
INPUTS = torch.zeros(CHUNK, 2, 4, 7, 5)


def masks(seeds: list[int], index: int = 0) -> torch.Tensor:
    return draw_masks(CONFIG, seeds, index, INPUTS[:, :len(seeds)], torch.float32)


def test_the_law_is_that_of_dropout() -> None:
    drawn = masks([0, 1])
    assert drawn.shape == (CHUNK, 3, 2, 1, 1, 7, 7)
    assert drawn.unique().tolist() == pytest.approx([0.0, 4 / 3])
    # The mean has a standard deviation of sqrt(1 / (3 n)).
    assert drawn.mean().item() == pytest.approx(1.0, abs=4 * (3 * drawn.numel()) ** -0.5)
    steps_and_layers = drawn[:, :, 0].flatten(0, 1).flatten(1)
    assert len(steps_and_layers.unique(dim=0)) == 3 * CHUNK


def test_a_member_has_the_masks_that_it_would_have_alone() -> None:
    together = masks([5, 1])
    assert torch.equal(together[:, :, 1], masks([1])[:, :, 0])
    assert torch.equal(together, masks([5, 1]))
    assert not torch.equal(together, masks([5, 1], index=1))
    assert not torch.equal(together[:, :, 0], together[:, :, 1])


def test_only_shared_masks_are_kept() -> None:
    assert can_be_drawn_ahead(CONFIG)
    assert not can_be_drawn_ahead(replace(CONFIG, attention_dropout=0.0))
    assert not can_be_drawn_ahead(replace(CONFIG, attention_dropout_form="independent"))


@pytest.mark.parametrize("graphed", [False, True])
def test_a_member_goes_the_way_that_it_would_go_alone(
    tiny: Callable[..., RunConfig], graphed: bool
) -> None:
    configs = [tiny(steps=50, seed=seed) for seed in (3, 4)]
    together = Ensemble(configs, ahead=True, graphed=graphed)
    alone = Ensemble(configs[1:], ahead=True)
    drawn_in_every_step = Ensemble(configs[1:])
    for _ in range(CHUNK + 3):
        for learner in (together, alone, drawn_in_every_step):
            learner.update()
    losses = together.recent_losses()[1]
    assert losses == pytest.approx(alone.recent_losses()[0], rel=1e-3)
    assert losses != pytest.approx(drawn_in_every_step.recent_losses()[0], rel=1e-3)
