"""What is left of features in a few dimensions, and of those that hold nothing?"""

from __future__ import annotations

import numpy as np

from latentcode.probes.common.harness import principal_axes


def test_axes_are_those_that_vary_and_the_first_vary_most() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(10, 10)))[0][:3]
    z = rng.normal(size=(400, 3)) * [1.0, 5.0, 2.0]
    x = (z @ basis + 7.0).astype(np.float32)
    found, = principal_axes([x], 8)
    assert found.shape == (400, 3)
    np.testing.assert_allclose(found.std(axis=0), sorted(z.std(axis=0), reverse=True), rtol=0.05)
    distances = [np.linalg.norm(points[:50, None] - points[None, :50], axis=-1)
                 for points in (x, found)]
    np.testing.assert_allclose(*distances, atol=1e-4)
    np.testing.assert_allclose(principal_axes([x], 2)[0], found[:, :2], atol=1e-5)


def test_constants_and_their_rounding_hold_nothing() -> None:
    rng = np.random.default_rng(0)
    constant = np.tile(rng.normal(size=16), (100, 1))
    rounding = constant * (1 + 1e-6 * rng.normal(size=constant.shape))
    for x in (constant, np.zeros((100, 16)), rounding.astype(np.float32)):
        assert principal_axes([x], 16)[0].shape == (100, 0)
