"""Our models give the official implementation's numbers from its weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from places import OFFICIAL

from latentcode.models.flax import model_from_flax

FILES = sorted(f for f in OFFICIAL.glob("*.npz")
               if not f.name.startswith("trainstep"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_logits_and_codes_agree_with_the_official_ones(file: Path) -> None:
    with np.load(file) as golden:
        data = dict(golden)
    config = json.loads(str(data["config_json"]))
    params = {k.removeprefix("param/"): v for k, v in data.items() if k.startswith("param/")}
    model = model_from_flax(config, params).eval()
    # The golden numbers are float32 themselves, so even float64 cannot agree to more.
    for dtype, absolute, relative in ((torch.float64, 5e-5, 0.0), (torch.float32, 1e-4, 1e-4)):
        x = torch.from_numpy(data["x"])
        x = x.to(dtype) if x.is_floating_point() else x.long()
        with torch.no_grad():
            logits, cache = model.to(dtype).run_with_cache(x)
        np.testing.assert_allclose(logits.numpy(), data["logits"], atol=absolute, rtol=relative)
        for layer in range(model.cfg.n_layers):
            official = data[f"attn_weights_{layer}"]
            np.testing.assert_allclose(
                cache["pattern", layer].numpy()[:len(official)], official,
                atol=absolute, rtol=relative)
