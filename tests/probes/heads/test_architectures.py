"""Hybrids are read where they have attention; networks that are not known are left out, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from random_texts import batches
from small_bridges import make
from small_language_models import SmallModels, make_tokenizer

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.probes.heads.clusters import cluster_codes, cluster_networks
from latentcode.probes.heads.codes import sample_codes
from latentcode.prompts import load_language_model


def test_a_hybrid_is_read_where_it_has_attention(small_models: SmallModels) -> None:
    asked = load_language_model(small_models("lfm2"))
    sample = sample_codes(asked, batches(asked, 20, 5), n=100)
    assert sample.codes.layers == (1,)
    clusters = cluster_codes(sample.codes, candidates=(2,), n_bootstrap=50)
    assert set(clusters.centres) == {"1"}
    networks, _, left_out = cluster_networks(asked, sample, clusters)
    assert not left_out
    assert set(networks["layer"]) == {1}


def test_effects_of_a_model_that_does_not_show_z_are_refused_before_texts_are_read(
    tmp_path: Path
) -> None:
    make("JetMoeForCausalLM", tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")

    def texts() -> Iterator[str]:
        yield from ("a river in Paris", "the capital of Peru")

    with pytest.raises(ConfigError, match=r"no hook blocks.0.attn.hook_z.*effects=\[\]"):
        lc.heads(tmp_path / "model", texts(), n_bootstrap=100,
                 progress=lambda done, total: pytest.fail("texts are read"))
    result = lc.heads(tmp_path / "model", texts(), effects=[], n_bootstrap=100)
    assert result.heads["value"].notna().any()


@pytest.mark.parametrize(("architecture", "why"), [
    ("DeepseekV3ForCausalLM", "no value network: W_V is not available on MLA"),
    ("AfmoeForCausalLM", "attention has a gate")])
def test_layers_without_networks_are_left_out(
    architecture: str, why: str, tmp_path: Path
) -> None:
    make(architecture, tmp_path / "model")
    asked = load_language_model(tmp_path / "model")
    sample = sample_codes(asked, batches(asked, 20, 5), n=100)
    clusters = cluster_codes(sample.codes, candidates=(2,), n_bootstrap=50)
    networks, _, left_out = cluster_networks(asked, sample, clusters)
    assert set(left_out) == set(sample.codes.layers)
    assert all(why in said for said in left_out.values())
    assert networks.empty
