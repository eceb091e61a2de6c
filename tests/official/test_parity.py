"""Does `parity` accept what is right, whatever its dimensions, and reject what is not?"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import OFFICIAL
from torch.nn import functional as F

from latentcode.cli import main
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.flax import MIXERS, config_to_flax, params_to_flax
from latentcode.models.positions import relative_bias
from latentcode.models.transformer import HookedTransformer
from latentcode.official.parity import Report, compare, compare_all, optax_corrections, table
from latentcode.training.optimizer import BETAS

LOGIC = OFFICIAL / "logic__linear_hypatt.npz"
STEPS = OFFICIAL / "trainstep__softmax_attention.npz"
Arrays = dict[str, np.ndarray]


def read(path: Path) -> Arrays:
    with np.load(path) as data:
        return dict(data)


def exit_status(*arguments: str | Path) -> int:
    try:
        main(["official", "parity", *map(str, arguments)])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize("path", sorted(OFFICIAL.glob("*.npz")), ids=lambda path: path.stem)
def test_official_files_agree(path: Path) -> None:
    report = compare(path)
    assert report.agrees, report.problems
    found = {c.quantity for c in report.comparisons}
    kind = path.name.partition("__")[0]
    assert found == {
        "logic": {"logits", "attention", "bias", "loss", "r2"},
        "raven": {"logits", "attention", "bias", "loss", "accuracy"},
        "lang": {"logits", "attention", "bias"},
        "trainstep": {"losses", "gradients", "norms", "schedule", "parameters"}}[kind]
    assert set(report.unread) <= {"latents", "perms"}


CORRECTIONS = {
    1: (0.10000002384185791, 0.0009999871253967285),
    2: (0.19000005722045898, 0.0019989609718322754),
    3: (0.27100008726119995, 0.002996981143951416),
    4: (0.34390008449554443, 0.0039939284324646),
    8: (0.5695328712463379, 0.00797194242477417),
    9: (0.6125795841217041, 0.008963942527770996),
    45: (0.9912720322608948, 0.04402351379394531),
    1000: (1.0, 0.6322998404502869)}
"""1 - decay**count for 0.9 and 0.999, compiled by jax 0.10.2 on a CPU, as in optax's update."""


def test_corrections_are_those_of_optax() -> None:
    assert {count: optax_corrections(count) for count in CORRECTIONS} == CORRECTIONS


@pytest.mark.parametrize("kind", ["linear_hypatt", "softmax_attention"])
def test_exact_corrections_are_told_apart(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = OFFICIAL / f"trainstep__{kind}.npz"
    monkeypatch.setattr("latentcode.official.parity.optax_corrections",
                        lambda count: tuple(1.0 - beta**count for beta in BETAS))
    assert any(re.search("losses differ by .* in float64", problem)
               for problem in compare(path).problems)


def test_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(LOGIC, STEPS) == 0
    out = capsys.readouterr().out
    for word in ("float64", "float32", "logits", "attention", "schedule", LOGIC.name, STEPS.name,
                 "not looked at: latents", "2 of 2 files agree"):
        assert word in out
    assert exit_status() == 2


def without(key: str) -> Callable[[Arrays], None]:
    def change(data: Arrays) -> None:
        del data[key]
    return change


def with_value(key: str, function: Callable[[np.ndarray], Any]) -> Callable[[Arrays], None]:
    def change(data: Arrays) -> None:
        data[key] = np.asarray(function(data[key]))
    return change


def with_field(**fields: Any) -> Callable[[Arrays], None]:
    """Set fields of the configuration; None removes one."""
    def change(data: Arrays) -> None:
        config = {**json.loads(str(data["config_json"])), **fields}
        data["config_json"] = np.array(
            json.dumps({k: v for k, v in config.items() if v is not None}))
    return change


def without_gradients(data: Arrays) -> None:
    for key in [key for key in data if key.startswith("grad0/")]:
        del data[key]


def nudged(array: np.ndarray, by: float = 1e-2) -> np.ndarray:
    array = array.copy()
    array.flat[0] += by
    return array


def with_nan(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array).astype(
        array.dtype)


VALUE = "param/transformer_block_0/sequence_mixer/value/kernel"
DAMAGES: dict[str, tuple[Path, Callable[[Arrays], None], str]] = {
    "weight": (LOGIC, with_value(VALUE, nudged), "logits differ by"),
    "weight of the codes": (LOGIC, with_value(VALUE.replace("value", "query"), nudged),
                            "attention differ by"),
    "bias table": (LOGIC, with_value(
        "param/transformer_block_1/relative_embedding/rel_embedding", nudged), "bias differ by"),
    "loss": (LOGIC, with_value("loss", nudged), "loss differ by"),
    "r2": (LOGIC, with_value("r2", lambda a: a * 1.01), "r2 differ by"),
    "accuracy": (OFFICIAL / "raven__linear_hypatt.npz", with_value(
        "acc_per_feature", lambda a: a + np.float32(1 / 16)), "accuracy differ by"),
    "logits with NaN": (LOGIC, with_value("logits", with_nan), "logits holds NaN"),
    "weight with NaN": (LOGIC, with_value(VALUE, with_nan), "value/kernel .*NaN"),
    "missing weight": (LOGIC, without(VALUE), "lack transformer_block_0/sequence_mixer/value"),
    "missing logits": (LOGIC, without("logits"), "logits is missing"),
    "missing pattern": (LOGIC, without("attn_weights_1"), "attn_weights_1 is missing"),
    "missing inputs": (LOGIC, without("x"), "x is missing"),
    "missing configuration": (LOGIC, without("config_json"), "config_json.*missing"),
    "configuration is a list": (
        LOGIC, with_value("config_json", lambda _: "[1]"), "expected a mapping"),
    "configuration is not JSON": (LOGIC, with_value("config_json", lambda _: "{"), "not JSON"),
    "missing field": (LOGIC, with_field(num_heads=None), "lacks num_heads"),
    "unknown mixer": (LOGIC, with_field(sequence_mixer="mamba"), "sequence_mixer 'mamba'"),
    "shape of a weight": (LOGIC, with_value(VALUE, lambda a: a[:, :4]), r"shape \(128, 4, 2\)"),
    "shape of the logits": (LOGIC, with_value("logits", lambda a: a[:2]), r"logits has shape"),
    "empty pattern": (LOGIC, with_value("attn_weights_0", lambda a: a[:0]), "attn_weights_0 has"),
    "inputs are text": (LOGIC, with_value("x", lambda a: a.astype(str)), "x has type"),
    "unknown weight": (LOGIC, lambda d: d.update({"param/extra": d[VALUE]}), "unknown extra"),
    "token out of range": (OFFICIAL / "lang__linear_hypatt.npz", with_value(
        "x", lambda a: a + 97), "x holds .* token ids from 0 to 96"),
    "final weight": (STEPS, with_value("param8/embedding/kernel", nudged), "parameters differ"),
    "first weight": (STEPS, with_value("param0/embedding/kernel", nudged), "losses differ"),
    "gradient": (STEPS, with_value("grad0/embedding/kernel", nudged), "gradients differ"),
    "norm": (STEPS, with_value("grad_norms", lambda a: a * 1.01), "norms differ"),
    "schedule": (STEPS, with_value("lr_schedule_steps0_24", nudged), "schedule differ"),
    "missing gradients": (STEPS, without_gradients, "arrays grad0 lack"),
    "missing final weight": (STEPS, without("param8/decoder_norm/bias"), "lack decoder_norm/bias"),
    "no learning rate": (STEPS, with_field(lr=None), "lacks lr"),
    "other optimiser": (STEPS, with_field(b2=0.95), "b2 is 0.95"),
    "dropout": (STEPS, with_field(attention_dropout_rate=0.1), "attention_dropout_rate is 0.1"),
    "fewer targets": (STEPS, with_value("y", lambda a: a[:7]), "y has shape"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, change, message = DAMAGES[name]
    data = read(source)
    change(data)
    damaged = tmp_path / "damaged.npz"
    np.savez(damaged, **data)  # type: ignore[arg-type]
    assert exit_status(damaged) == 1
    errors = capsys.readouterr().err
    assert str(damaged) in errors
    assert re.search(message, errors), errors


def test_a_file_that_is_no_npz_keeps_no_other_from_being_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half.npz").write_bytes(LOGIC.read_bytes()[:9_000])
    (tmp_path / "state.pkl").write_bytes(pickle.dumps({"a": 1}))
    expected = {"half.npz": "damaged or not", "state.pkl": "pickle.*CONVERSION",
                "none.npz": "does not exist"}
    files = [tmp_path / name for name in expected]
    *reports, last = compare_all([*files, LOGIC])
    for report, message in zip(reports, expected.values(), strict=True):
        assert report.file in report.damage
        assert re.search(message, report.damage), report.damage
    assert last.agrees
    assert table([*reports, last]).count("damaged") == len(files)
    assert exit_status(files[0], LOGIC) == 1
    assert "1 of 2 files agree" in capsys.readouterr().out


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    token = draw(st.booleans())
    width = draw(st.integers(2, 9))
    distance = draw(st.integers(2, 12))
    config = ModelConfig(
        d_input=width, d_output=width if token else draw(st.integers(1, 4)),
        n_layers=draw(st.integers(1, 3)), d_model=draw(st.integers(4, 17)),
        n_heads=draw(st.integers(2, 5)), d_head=draw(st.integers(1, 4)),
        d_head_v=draw(st.integers(1, 5)), d_mlp=draw(st.integers(1, 12)),
        positions=draw(st.sampled_from(["t5", "none"])), n_buckets=distance,
        max_distance=distance, causal=draw(st.booleans()),
        attention_dropout=draw(st.sampled_from([0.0, 0.1, 0.5])),
        feedforward=draw(st.sampled_from(["gelu", "swiglu"])),
        embedding="token" if token else "dense", readout="tied" if token else "dense")
    return with_kind(config, draw(st.sampled_from(sorted(MIXERS.values()))))


def outputs(config: ModelConfig, n: int, length: int) -> tuple[HookedTransformer, Arrays]:
    """Return a model with random weights, and a file of its float64 outputs as official ones."""
    generator = torch.Generator().manual_seed(n + 17 * length)
    model = HookedTransformer(config, seed=length)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    data = {f"param/{k}": v for k, v in params_to_flax(model).items()}
    model = model.double().eval()
    x = (torch.randint(config.d_input, (n, length), generator=generator)
         if config.embedding == "token"
         else torch.rand(n, length, config.d_input, generator=generator))
    with torch.no_grad():
        logits, cache = model.run_with_cache(x if x.ndim == 2 else x.double())
    data |= {"x": x.numpy(), "logits": logits.float().numpy(),
             "config_json": np.array(json.dumps(config_to_flax(config)))}
    for layer in range(config.n_layers):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        data[f"attn_weights_{layer}"] = pattern[:1].float().numpy()
        bias = model.layer(layer).attn.rel_pos_bias
        if bias is not None:
            data[f"attn_bias_{layer}"] = relative_bias(
                bias.detach(), length, length, config.max_distance).float().numpy()
    return model, data


def report_of(data: Arrays, folder: Path) -> Report:
    np.savez(folder / "file.npz", **data)  # type: ignore[arg-type]
    return compare(folder / "file.npz")


@settings(max_examples=25)
@given(models(), st.integers(1, 5), st.integers(1, 30))
def test_files_of_other_dimensions(
    tmp_path_factory: pytest.TempPathFactory, config: ModelConfig, n: int, length: int
) -> None:
    folder = tmp_path_factory.mktemp("file")
    _, data = outputs(config, n, length)
    report = report_of(data, folder)
    assert report.agrees, report.problems
    assert report.unread == ()
    relevant = ["param/decoder_norm/bias"]
    if config.positions == "t5":
        # The bucket of the key at the query itself, which every sequence has.
        relevant.append("param/transformer_block_0/relative_embedding/rel_embedding")
    for path in relevant:
        assert not report_of({**data, path: nudged(data[path])}, folder).agrees, path


@pytest.mark.parametrize(("kind", "symbols"), [
    ("hyla", 0), ("softmax", 0), ("hyla_softmax", 7), ("linear", 5)])
def test_optimiser_steps_of_other_dimensions(kind: str, symbols: int, tmp_path: Path) -> None:
    """Three steps of optax by hand, with a schedule of another length and weights of step 2."""
    width = symbols or 6
    config = with_kind(ModelConfig(
        d_input=width, d_output=symbols or 1, n_layers=1, d_model=9, n_heads=3, d_head=2,
        d_head_v=3, d_mlp=7, n_buckets=6, max_distance=6, attention_dropout=0.0), kind)
    generator = torch.Generator().manual_seed(0)
    model = HookedTransformer(config, seed=5).double()
    x = torch.rand(3, 4, 10, width, generator=generator)
    y = (torch.randint(symbols, (3, 4, 2), generator=generator) if symbols
         else torch.rand(3, 4, 1, generator=generator))
    rates = [0.0, 0.01, 0.01 * (0.1 + 0.9 * (1 + np.cos(np.pi / 5)) / 2)]
    moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()]

    def stored(prefix: str) -> Arrays:
        return {f"{prefix}/{k}": v.astype(np.float32) for k, v in params_to_flax(model).items()}

    data, losses, norms = stored("param0"), [], []
    for step in range(3):
        logits = model(x[step].double())
        loss = (F.cross_entropy(logits[:, -2:].flatten(0, 1), y[step].flatten()) if symbols
                else F.mse_loss(logits[:, -1], y[step].double()))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norms.append(sum(float(g.square().sum()) for g in gradients) ** 0.5)
        losses.append(loss.item())
        if step == 0:
            holder = HookedTransformer(config).double()
            for target, gradient in zip(holder.parameters(), gradients, strict=True):
                target.data.copy_(gradient)
            data |= {f"grad0/{k}": v.astype(np.float32) for k, v in params_to_flax(holder).items()}
        for p, g, (m, v) in zip(model.parameters(), gradients, moments, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g**2)
            first, second = CORRECTIONS[step + 1]
            decay = 0.2 * p.detach() if p.ndim != 1 else 0.0
            p.data.sub_(rates[step] * ((m / first) / ((v / second).sqrt() + 1e-8) + decay))
        if step > 0:
            data |= stored(f"param{step + 1}")
    data |= {
        "x": x.numpy(), "y": y.numpy(), "losses": np.array(losses),
        "grad_norms": np.array(norms, np.float32),
        "lr_schedule_steps0_2": np.array(rates, np.float32),
        "config_json": np.array(json.dumps({
            **config_to_flax(config), "lr": 0.01, "warmup_steps": 1, "train_steps": 7, "batch": 4,
            "weight_decay": 0.2, "b1": 0.9, "b2": 0.999, "eps": 1e-8}))}
    report = report_of(data, tmp_path)
    assert report.agrees, report.problems
    assert report.unread == ()
    exact = {c.quantity: c.largest_error for c in report.comparisons if c.precision == "float64"}
    assert exact["losses"] < 1e-12
    path = "param2/logitdense/kernel"
    assert not report_of({**data, path: nudged(data[path])}, tmp_path).agrees
