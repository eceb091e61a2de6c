"""Is what a patch does what the library's own patches do, and is none of it silent?"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_language_models import SmallModels

import latentcode as lc
from latentcode.app.language.passes import Patch, encoded, other_sources, patched, see
from latentcode.app.language.work import Job
from latentcode.prompts import load_language_model

BASE, SOURCE = "The capital of France is", "The river of Peru was"


@pytest.fixture(scope="module")
def job(small_models: SmallModels) -> Job:
    found = Job(0, "small")
    found.model = load_language_model(small_models("gpt2"))
    found.opened.set()
    return found


def test_a_pass_shows_codes_and_what_comes_next(job: Job) -> None:
    ids = encoded(job, BASE, 64)
    seen = see(job, ids)
    assert seen is see(job, ids)
    assert job.model is not None
    logits, cache = job.model.model.run_with_cache(torch.tensor([ids]))
    for layer in range(2):
        np.testing.assert_allclose(seen.pattern[layer], cache[
            f"blocks.{layer}.attn.hook_pattern"][0].numpy(), atol=1e-6)
    wanted = logits[0, -1].detach().double().softmax(-1).numpy()
    np.testing.assert_allclose(seen.p, wanted, atol=1e-6)
    assert seen.codes(2).shape == (3, 2, 4)


@pytest.mark.parametrize("site", ["codes", "values", "z", "residual stream"])
def test_its_own_leaves_every_bit_and_another_s_does_not(job: Job, site: str) -> None:
    base, source = encoded(job, BASE, 64), encoded(job, SOURCE, 64)
    length = min(len(base), len(source))
    base, source = base[-length:], source[-length:]
    query = length - 1
    found = patched(job, base, source, Patch(site, (0, 1), None, query, query))
    assert found.exact
    assert np.abs(found.p - see(job, base).p).max() > 1e-6
    itself = patched(job, base, base, Patch(site, (0, 1), None, query, query))
    np.testing.assert_array_equal(itself.p, see(job, base).p)


def test_a_patched_code_is_that_of_the_library(job: Job) -> None:
    base, source = encoded(job, BASE, 64), encoded(job, SOURCE, 64)
    patch = Patch("codes", (1,), (2,), len(base) - 1, len(source) - 1, 1, 2)
    given = see(job, source).pattern[1, 2, len(source) - 1, 2]

    def edit(codes: torch.Tensor, hook: object) -> torch.Tensor:
        codes = codes.clone()
        codes[:, 2, len(base) - 1, 1] = float(given)
        return codes

    said = lc.generate(job.model, list(base), max_new_tokens=1, logits=True, layers=(),
                       fwd_hooks=[("blocks.1.attn.hook_pattern", edit)], cache=False)
    assert said.logits is not None
    wanted = torch.from_numpy(said.logits[0]).double().softmax(-1).numpy()
    np.testing.assert_allclose(patched(job, base, source, patch).p, wanted, atol=1e-6)


def test_others_are_patched_beside_it(job: Job) -> None:
    base, source = encoded(job, BASE, 64), encoded(job, SOURCE, 64)
    others = other_sources([np.array(base), np.array(source), np.array([1])], 3, 4)
    assert sorted(map(len, others)) == [3, 3]
    patch = Patch("z", (0,), None, len(base) - 1, 2)
    found = patched(job, base, source[:3], patch, others)
    alone = [patched(job, base, other, patch).p for other in others]
    np.testing.assert_allclose(found.others, np.stack(alone), atol=1e-6)
