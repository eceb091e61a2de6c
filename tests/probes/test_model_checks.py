"""`check_model`: what works is SUPPORTED, and mistakes planted in a bridge are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_bridges import make, names
from small_language_models import SmallModels
from torch import Tensor

import latentcode as lc
from latentcode.errors import LatentCodeError
from latentcode.files.provenance import package_version
from latentcode.models import pretrained
from latentcode.probes import model_checks
from latentcode.probes.common.results import load_result
from latentcode.probes.model_checks import (
    QUESTIONS,
    VERBS,
    ModelCheckResult,
    reference,
    worst_answers,
)

Plant = Callable[[Any], None]
TABLE = pd.read_csv(Path(__file__).with_name("architectures.csv"),
                    keep_default_na=False).set_index("architecture")
same_versions = pytest.mark.skipif(
    (package_version("transformer-lens"), package_version("transformers")) != ("4.3.0", "5.23.0"),
    reason="the table is of other versions of TransformerLens or transformers")


@pytest.mark.parametrize("architecture", [
    "gpt2", *(pytest.param(name, marks=pytest.mark.slow)
              for name in ("llama", "neox", "qwen2", "gemma2"))])
def test_what_works_is_supported(
    architecture: str, small_models: SmallModels, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    result = lc.check_model(small_models(architecture),
                            progress=lambda done, total: told.append((done, total)))
    assert result.verdict == "SUPPORTED"
    assert result.supported
    assert all(result.trusted.values())
    assert told == [(1, 3), (2, 3), (3, 3)]
    table = result.table
    assert set(table["check"]) == set(QUESTIONS)
    assert set(table["outcome"]) == {"holds"}
    layers = table.groupby("check")["layer"].agg(set)
    assert layers["codes"] == layers["value networks"] == layers["patch"] == {"0", "1"}
    assert layers["identity"] == {"all", "0", "1"}
    exact = table[table["check"].isin(["identity", "masked"])]
    assert (exact[["value", "bound"]] == 0.0).all(axis=None)
    assert (table.loc[table["check"] == "patch", "value"] > 0.01).all()
    folder = result.save(tmp_path / "result")
    again = load_result(folder)
    assert isinstance(again, ModelCheckResult)
    pd.testing.assert_frame_equal(again.summary(), result.summary())
    assert "SUPPORTED" in repr(again)
    assert "do the codes of a query sum to 1?" in again._repr_html_()


def test_float64_leaves_rounding_no_room(small_models: SmallModels) -> None:
    table = lc.check_model(small_models("gpt2"), dtype="float64", lengths=(5, 12)).table
    assert (table.loc[table["check"] != "patch", "value"] < 1e-13).all()


def scaled(model: Any) -> None:
    """Scores are divided by something else than the root of d."""
    model.blocks[1].attn.original_component.scaling *= 1.05


def without_bias(model: Any) -> None:
    """The biases of the values are dropped."""
    model.blocks[1].attn.v.original_component.bias.data.zero_()


def unfolded(model: Any) -> None:
    """The weight of a norm is taken to be in the next matrix, where it is not."""
    model.blocks[1].ln1.original_component.weight.data.fill_(1.0)


def unmasked(model: Any) -> None:
    """Queries see later keys."""
    model.blocks[0].attn._apply_reconstruct_attention_mask = lambda attn_scores, **_: attn_scores


def other_stream(model: Any) -> None:
    """What is shown as the stream is not what the layer goes on with."""
    _shown(model.blocks[1].hook_in, lambda stream: 1.01 * stream)


def other_codes(model: Any) -> None:
    """What is shown as the pattern is not what attention used."""
    _shown(model.blocks[1].attn.hook_pattern, lambda code: code.flip(1))


def rounded(model: Any) -> None:
    """What is written back loses digits."""
    _shown(model.blocks[0].attn.hook_pattern, None, lambda code: code.bfloat16().to(code.dtype))


def discarded(model: Any) -> None:
    """Codes are shown, and what is written is thrown away."""
    hook = model.blocks[1].attn.hook_pattern
    kind = type(hook)

    def show(self: Any, code: Any) -> Any:
        kind.__call__(self, code.clone())
        return code

    hook.__class__ = type(kind.__name__, (kind,), {"__call__": show})


def value_heads(model: Any) -> None:
    """The weights of the values are those of other heads, for whoever asks for them."""
    attention = model.blocks[1].attn
    kind = type(attention)
    attention.__class__ = type(kind.__name__, (kind,), {
        "W_V": property(lambda self: kind.W_V.fget(self).flip(0))})


def _shown(
    hook: Any, show: Callable[[Tensor], Tensor] | None,
    take: Callable[[Tensor], Tensor] | None = None,
) -> None:
    from transformer_lens.conversion_utils.conversion_steps.base_tensor_conversion import (
        BaseTensorConversion,
    )

    class Conversion(BaseTensorConversion):
        def handle_conversion(self, input_value: Tensor, *context: Any) -> Tensor:
            return input_value if show is None else show(input_value)

        def revert(self, input_value: Tensor, *context: Any) -> Tensor:
            return input_value if take is None else take(input_value)

    hook.hook_conversion = Conversion()


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("plant", "failed", "layer", "left"), [
    (scaled, {"logits", "padding", "codes"}, "1", 0),
    slow(without_bias, {"logits", "padding"}, "all", 0),
    slow(unfolded, {"logits", "padding", "codes"}, "1", 0),
    slow(unmasked, {"logits", "padding", "codes", "masked", "residual"}, "0", 0),
    slow(other_stream, {"residual"}, "1", 4),
    slow(other_codes, {"codes", "values", "value networks", "identity"}, "1", 0),
    (rounded, {"identity"}, "0", 3),
    slow(discarded, {"patch"}, "1", 3),
    (value_heads, {"value networks"}, "1", 4),
], ids=lambda value: getattr(value, "__name__", None))
def test_planted_mistakes_are_found(
    plant: Plant, failed: set[str], layer: str, left: int, small_models: SmallModels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = model_checks.as_bridge

    def mistaken(*arguments: Any) -> Any:
        model = made(*arguments)
        plant(model)
        return model

    monkeypatch.setattr(model_checks, "as_bridge", mistaken)
    result = lc.check_model(small_models("qwen2"), lengths=(5, 9))
    assert set(result.failed) == failed
    assert not result.supported
    assert sum(result.trusted.values()) == left
    assert result.verdict.startswith("NOT SUPPORTED in full: ")
    layers = set(result.table.loc[result.table["outcome"] == "fails", "layer"])
    assert min(layers) == layer  # digits come before "all"
    shown = result.summary().set_index("check")
    for name in failed:
        assert name in result.verdict
        assert shown.loc[name, "not to be trusted"] == ", ".join(QUESTIONS[name].verbs)


def test_a_pattern_that_is_only_shown_serves_for_reading(
    small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "add_seam", lambda *_: False)
    result = lc.check_model(small_models("gptj"))
    assert result.failed == ("patch",)
    assert result.trusted == {verb: "intervene" not in verb and verb != "renormalize"
                              for verb in VERBS}
    assert "patch (0 in layer 0)" in result.verdict


def test_what_was_not_seen_is_said(small_models: SmallModels) -> None:
    result = lc.check_model(small_models("gemma2"), lengths=4)
    assert "sliding window has 4096 tokens and the longest prompt 4" in " ".join(result.caveats)
    table = result.table.copy()
    rows = table["check"] == "codes"
    table.loc[rows, ["outcome", "note"]] = ["not compared", "transformers tells no weights"]
    table.loc[rows, "value"] = np.nan
    blind = ModelCheckResult(table, result.settings)
    assert not blind.supported
    assert blind.verdict.startswith("NOT SHOWN: codes")
    assert any(note.startswith("Not compared: codes") for note in blind.caveats)


@pytest.mark.parametrize(("values", "outcome"), [
    ((0.5, 0.2), "holds"), ((0.5, 0.0), "fails"), ((0.5, float("inf")), "fails")])
def test_codes_that_break_the_logits_do_not_take_effect(
    values: tuple[float, ...], outcome: str
) -> None:
    table = worst_answers([("patch", "0", value, "") for value in values], 1e-4)
    assert list(table["outcome"]) == [outcome]


def test_a_folder_needs_no_tokenizer(small_models: SmallModels, tmp_path: Path) -> None:
    mute = shutil.copytree(small_models("gpt2"), tmp_path / "mute")
    for file in mute.glob("tokenizer*"):
        file.unlink()
    assert lc.check_model(mute, lengths=4).supported


def test_the_reference_leaves_the_model_as_it_was(small_models: SmallModels) -> None:
    """What a bridge computes must not depend on whether transformers was asked first."""
    from latentcode.models.pretrained import as_bridge, load_network, load_pretrained

    tokens = torch.arange(3, 12)[None]
    folder = small_models("llama")
    network, tokenizer = load_network(folder)
    reference(network, tokens)
    with torch.no_grad():
        assert torch.equal(as_bridge(str(folder), network, tokenizer)(tokens),
                           load_pretrained(folder)(tokens))


# --- What was found of architectures is found again, with the versions of then ------------------


@same_versions
def test_no_architecture_is_left_out() -> None:
    assert set(TABLE.index) == set(names())


@same_versions
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of sizes that no published model has
@pytest.mark.parametrize("name", TABLE.index[TABLE["outcome"] != "not built"])
def test_an_architecture_is_supported_as_the_table_says(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "model")
    try:
        outcome = "supported" if lc.check_model(tmp_path / "model").supported else "partly"
    except LatentCodeError:
        outcome = "refused"
    assert outcome == TABLE.loc[name, "outcome"]
