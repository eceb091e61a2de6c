"""Whatever is not as its card says is noticed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disk import flip
from small_zoo import NAME
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import latentcode as lc
from latentcode import zoo
from latentcode.cli import main
from latentcode.errors import ConfigError
from latentcode.files.storage import checksum, read_json, read_tensors, write_json, write_tensors
from latentcode.metrics import Metric, is_by_constituent
from latentcode.tasks.sraven.rules import RULES
from latentcode.zoo.card import CARD, README, Card


def test_an_untouched_entry_is_as_its_card_says(entry: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in entry.rglob("*")}
    seen: list[tuple[int, int]] = []
    found = zoo.verify(NAME, progress=lambda done, total: seen.append((done, total)))
    assert found.problems == []
    assert found.n == 300
    assert set(found.metrics["split"]) == {"train", "test", "ood"}
    assert {name for name in found.metrics["metric"] if not is_by_constituent(name)} == {
        "accuracy", "feature_accuracy", "loss"}
    assert {f"feature_accuracy[{rule}]" for rule in RULES} < set(found.metrics["metric"])
    assert found.metrics["difference"].abs().max() < 1e-6
    for row in found.metrics.itertuples():  # as many flips of fewer answers
        known = zoo.load_card(NAME).metrics[row.split][row.metric]
        assert row.allowed == pytest.approx(5e-4 * max(1.0, 300 / known.n))
    assert seen[-1] == (900, 900)
    assert seen == sorted(seen)
    assert {path: path.stat().st_mtime_ns for path in entry.rglob("*")} == before


def test_other_instances_may_differ_by_their_standard_errors(entry: Path) -> None:
    found = zoo.verify(NAME, n=100)
    assert found.problems == []
    metrics = found.metrics
    assert metrics["difference"].abs().max() > 1e-6
    assert set(metrics["metric"]) == {"accuracy", "feature_accuracy", "loss"}
    known = zoo.load_card(NAME).metrics["ood"]["loss"]
    row = metrics.query("split == 'ood' and metric == 'loss'").iloc[0]
    assert row["allowed"] == pytest.approx(5e-4 + 4 * known.se * np.sqrt(1 + 300 / 100))
    edit_loss(entry, known.mean + 5 * known.se * np.sqrt(1 + 300 / 100))
    assert any("loss on ood" in problem for problem in zoo.verify(NAME, n=100).problems)
    with pytest.raises(ConfigError, match="n is 0"):
        zoo.verify(NAME, n=0)


class NoBfloat16(TorchDispatchMode):
    """A processor without bfloat16: whatever would compute in it fails."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16
               for x in tree_leaves((args, out))):
            raise RuntimeError(f"{function} in bfloat16")
        return out


@pytest.mark.slow
def test_a_model_trained_in_bfloat16_is_verified_without_it() -> None:
    run = lc.load_run("logic-hyla")
    assert run.config.training.precision == "bf16_mlp"
    with NoBfloat16():
        assert zoo.verify("logic-hyla", n=16).problems == []
        with pytest.raises(RuntimeError, match="in bfloat16"):
            lc.evaluate(run.load_model(), lc.make_task(run.config.task), "ood", 16, seed=0,
                        precision="bf16_mlp")


def edit_card(entry: Path, **changes: object) -> None:
    """Change the card, and the page with it."""
    card = replace(Card.read(entry), **changes)  # type: ignore[arg-type]
    (entry / README).write_text(card.to_markdown(), encoding="utf-8")
    card.write(entry)


def edit_metrics(
    entry: Path, change: Callable[[Metric], Metric | None], *, split: str = "", name: str = ""
) -> None:
    """Change the metrics of a split and a name, or all, on the card; None takes one off."""
    metrics = {of: {
        metric: change(known) if split in ("", of) and name in ("", metric) else known
        for metric, known in found.items()} for of, found in Card.read(entry).metrics.items()}
    edit_card(entry, metrics={of: {metric: known for metric, known in found.items() if known}
                              for of, found in metrics.items()})


def edit_loss(entry: Path, mean: float) -> None:
    edit_metrics(entry, lambda known: replace(known, mean=mean), split="ood", name="loss")


def change_loss(entry: Path) -> None:
    edit_loss(entry, Card.read(entry).metrics["ood"]["loss"].mean + 1e-3)


def weights(entry: Path) -> Path:
    return entry / "checkpoints/step_0000030/model.safetensors"


def change_weight(entry: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give the model other weights, with checksums that fit them."""
    tensors, state = read_tensors(weights(entry)), weights(entry).with_name("state.json")
    write_tensors(weights(entry), {**tensors, name: change(tensors[name])})
    write_json(state, {**read_json(state), "sha256": {
        "model.safetensors": checksum(weights(entry))}})


def add_rule(entry: Path) -> None:
    metrics = Card.read(entry).metrics
    edit_card(entry, metrics={**metrics, "ood": {
        **metrics["ood"], "f_a[magic]": Metric(1.0, 0.0, 50)}})


def without(entry: Path, part: str, key: str) -> None:
    """Take a split or a file off the card."""
    card = Card.read(entry)
    kept = {name: value for name, value in getattr(card, part).items() if name != key}
    replace(card, **{part: kept}).write(entry)  # type: ignore[arg-type]


SUM = "feature_accuracy[sum]"
CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a weight's bit": (lambda e: flip(weights(e)), r"model\.safetensors was damaged"),
    "a weight": (
        lambda e: change_weight(e, "blocks.1.attn.W_Q", lambda w: 1.5 * w),
        "feature_accuracy on train is"),
    "a metric": (change_loss, r"loss on ood is \d.*; the card says \d.*difference 0\.0005"),
    "a metric is missing": (
        lambda e: edit_metrics(e, lambda _: None, split="test", name="loss"),
        "the card has accuracy, .* on test; the task measures"),
    "a rule": (
        lambda e: edit_metrics(e, lambda m: replace(m, mean=0.9), split="ood", name=SUM),
        r"feature_accuracy\[sum\] on ood is 0\..*; the card says 0\.9 "),
    "how many tokens a rule has": (
        lambda e: edit_metrics(e, lambda m: replace(m, n=1), split="ood", name=SUM),
        r"feature_accuracy\[sum\] on ood is measured on \d+; the card says 1$"),
    "a rule is missing": (
        lambda e: edit_metrics(e, lambda _: None, name=SUM),
        r"feature_accuracy\[sum\] on test is measured on \d+; the card says 0$"),
    "a rule that never came": (
        add_rule, r"f_a\[magic\] on ood is measured on 0; the card says 50$"),
    "a split is missing": (lambda e: without(e, "metrics", "ood"),
                           "metrics on train, test; the task offers train, test, ood"),
    "the page": (lambda e: (e / README).write_text("Best model."), r"README\.md says other than"),
    "the number of parameters": (
        lambda e: replace(Card.read(e), parameters=17).write(e), "parameters; the card says 17"),
    "the configuration": (
        lambda e: (e / "config.yaml").write_text("a: b"), r"config\.yaml"),
    "the name": (lambda e: edit_card(e, name="best"), "card is that of 'best'; expected 'tiny-hy"),
    "the kind": (lambda e: edit_card(e, kind="softmax"), "of kind hyla; the card says softmax"),
    "a sentence": (lambda e: replace(Card.read(e), summary="The best.").write(e),
                   r"README\.md says other than card\.json"),
    "how many were measured": (
        lambda e: edit_metrics(e, lambda m: replace(m, n=10**9)),
        "on 1,000,000,000 instances; the card says 300"),
    "a standard error": (
        lambda e: edit_metrics(e, lambda m: replace(m, se=m.se + 0.01)),
        "the standard error of loss on ood is .*; the card says"),
    "the card": (lambda e: (e / CARD).unlink(), r"card\.json is missing"),
    "no card": (lambda e: (e / CARD).write_text("{}"), "expected .*latentcode.card"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_named(
    entry: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit, message = CHANGES[change]
    edit(entry)
    with pytest.raises(SystemExit) as raised:
        main(["zoo", "verify"])
    assert raised.value.code == 1
    out, errors = capsys.readouterr()
    assert not out
    lines = [line for line in errors.splitlines() if line.startswith(f"{NAME}: ")]
    assert len(lines) == len(set(lines)) > 0
    assert any(re.search(message, line) for line in lines), errors


def test_an_older_card_is_compared_on_what_it_holds(entry: Path) -> None:
    """Before accuracy by rule was measured, cards had none, and pages no table of it."""
    card = Card.read(entry)
    assert "By constituent." in card.to_markdown()
    edit_card(entry, metrics={
        split: {name: m for name, m in found.items() if not is_by_constituent(name)}
        for split, found in card.metrics.items()})
    assert "By constituent" not in (entry / README).read_text()
    found = zoo.verify(NAME)
    assert found.problems == []
    assert set(found.metrics["metric"]) == {"accuracy", "feature_accuracy", "loss"}
    change_loss(entry)
    assert any("loss on ood" in problem for problem in zoo.verify(NAME).problems)


def test_metrics_notice_a_changed_weight(entry: Path) -> None:
    change_weight(entry, "unembed.b_U", lambda b: b + np.arange(5, dtype=np.float32))
    problems = zoo.verify(NAME).problems
    assert any("loss on ood" in problem for problem in problems)


def test_the_command_line(
    entry: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    main(["zoo", "list"])
    out = capsys.readouterr().out
    assert NAME in out
    assert "accuracy" in out
    assert "unknown" not in out
    main(["zoo", "verify", NAME, "--n", "64"])
    assert f"{NAME}: as its card says; 64 instances" in capsys.readouterr().out
    assert "unknown model 'nobody'" in refused("zoo", "verify", "nobody")
    assert "n is 0" in refused("zoo", "verify", "--n", "0")
    shutil.rmtree(entry)
    for command in ("list", "verify"):
        assert "has no models in its zoo" in refused("zoo", command)


@pytest.mark.slow
def test_the_models_of_the_library_are_as_their_cards_say() -> None:
    for name in lc.list_models().index:
        assert zoo.verify(name, n=500).problems == []
