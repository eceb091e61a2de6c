"""Are pretrained models loaded as people load them: by name, revision and commit, or not at all?"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hub_server import Hub, Repo, hub_server
from huggingface_hub import constants
from small_factorial import factorial_prompts
from small_language_models import SmallModels

import latentcode as lc
from latentcode.errors import ArtifactError, ConfigError
from latentcode.models import pretrained

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
NAME = "lab/tiny"
STEPS = "step0", "step1000"
TOKENS = torch.tensor([[5, 60, 7, 9]])


@pytest.fixture
def models(hub: Hub, cache: Path, small_models: SmallModels, monkeypatch: pytest.MonkeyPatch
           ) -> Hub:
    """A hub with a model of two layers, whose branches are steps of its training and whose newest
    commit has other weights again, in an empty cache."""
    from safetensors.torch import load, save

    monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(cache))
    files = {path.name: path.read_bytes() for path in small_models("neox").iterdir()}
    commits = []
    for step, factor in ((0, 0.5), (1000, 0.8), (2000, 1.0)):
        weights = {name: factor * weight
                   for name, weight in load(files["model.safetensors"]).items()}
        config = json.loads(files["config.json"]) | {"training_step": step}
        commits.append(files | {"model.safetensors": save(weights, {"format": "pt"}),
                                "config.json": json.dumps(config).encode()})
    hub.repos["models", NAME] = Repo(commits=commits, refs={STEPS[0]: 0, STEPS[1]: 1})
    return hub


def _weight(model: Any) -> torch.Tensor:
    return model.original_model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight


def test_a_revision_is_a_branch_a_tag_or_a_commit(models: Hub) -> None:
    repo = models.repos["models", NAME]
    newest, first, by_name, by_commit = (
        lc.load_pretrained(*of, **options) for of, options in (
            ((NAME,), {}), ((NAME,), {"revision": STEPS[0]}), ((f"{NAME}@{STEPS[0]}",), {}),
            ((f"{NAME}@{repo.oid(0)}",), {})))
    assert first.cfg.model_name == by_name.cfg.model_name == f"{NAME}@{STEPS[0]}"
    for model in (by_name, by_commit):
        assert torch.equal(model(TOKENS), first(TOKENS))
    assert torch.allclose(0.5 * _weight(newest), _weight(first))
    assert not torch.equal(newest(TOKENS), first(TOKENS))
    # The configuration is that of the revision, of the control, too.
    for model in (first, lc.load_pretrained(NAME, revision=STEPS[0], untrained=True)):
        assert model.original_model.config.training_step == 0
    with pytest.raises(ConfigError, match=r"names revision 'step0', and revision is 'step1000'"):
        lc.load_pretrained(f"{NAME}@step0", revision="step1000")


@pytest.mark.slow
def test_every_result_says_the_revision_and_its_commit(
    models: Hub, tmp_path: Path, small_models: SmallModels
) -> None:
    repo = models.repos["models", NAME]
    prompts = factorial_prompts()
    few: dict[str, Any] = {"n_bootstrap": 100}
    decoded = lc.decode(f"{NAME}@step0", prompts, **few)
    assert decoded.settings["train"]["revision"] == "step0"
    assert decoded.settings["train"]["commit"] == repo.oid(0)
    codes = lc.extract(lc.subject(NAME, prompts, revision="step1000"))
    assert (codes.meta["revision"], codes.meta["commit"]) == ("step1000", repo.oid(1))
    assert codes.meta["run"] == f"{NAME}@step1000"
    newest = lc.extract(NAME, prompts)
    assert "revision" not in newest.meta
    assert newest.meta["commit"] == repo.oid(2)
    control = lc.extract(f"{NAME}@step0", prompts, untrained=True)
    assert control.meta["commit"] == repo.oid(0)
    assert not {"revision", "commit"} & {*lc.extract(small_models("neox"), prompts).meta}
    heads = lc.heads(f"{NAME}@step0", ["a text of Paris and Rome and then Paris"] * 2, effects=[],
                     n_bootstrap=100)
    assert (heads.settings["revision"], heads.settings["commit"]) == ("step0", repo.oid(0))
    checked = lc.check_model(f"{NAME}@step1000", lengths=[4])
    assert checked.supported
    assert checked.settings["model"] == f"{NAME}@step1000"
    assert checked.settings["commit"] == repo.oid(1)
    aligned = lc.align([f"{NAME}@{step}" for step in STEPS], prompts, n_bootstrap=100)
    assert {*aligned.heads["run_a"], *aligned.heads["run_b"]} == {f"{NAME}@{s}" for s in STEPS}


@pytest.mark.slow
def test_a_revision_is_asked_for_on_the_command_line(models: Hub, tmp_path: Path) -> None:
    from latentcode.cli import main

    file = tmp_path / "prompts.jsonl"
    factorial_prompts().to_json(file, orient="records", lines=True)
    main(["extract", NAME, "--prompts", str(file), "--revision", "step0", "--device-map", "auto",
          "--out", str(tmp_path / "codes")])
    codes = lc.LatentCodes.load(tmp_path / "codes")
    assert codes.meta["commit"] == models.repos["models", NAME].oid(0)
    np.testing.assert_array_equal(
        codes.scores, lc.extract(f"{NAME}@step0", str(file)).scores)


def test_the_control_needs_no_weights(models: Hub) -> None:
    wanted = lc.load_pretrained(NAME, untrained=True, seed=2)(TOKENS)
    assert not any("safetensors" in asked for asked in models.asked)
    files = models.repos["models", NAME].commits[-1]
    models.repos["models", "lab/bare"] = Repo(commits=[_without(files, "model.safetensors")])
    assert torch.equal(lc.load_pretrained("lab/bare", untrained=True, seed=2)(TOKENS), wanted)


def test_the_tokenizer_is_that_of_the_revision(models: Hub) -> None:
    from tokenizers import Tokenizer

    # Under another name: huggingface_hub remembers for a while which commit a branch is.
    models.repos["models", "lab/early"] = repo = deepcopy(models.repos["models", NAME])
    files = repo.commits[0]
    told = json.loads(files["tokenizer.json"])
    told["added_tokens"].append({
        "id": 399, "content": "<|early|>", "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True})
    Tokenizer.from_str(json.dumps(told))  # is one
    files["tokenizer.json"] = json.dumps(told).encode()
    early, newest = (lc.load_pretrained(name).tokenizer
                     for name in ("lab/early@step0", "lab/early"))
    assert "<|early|>" in early.get_vocab()
    assert "<|early|>" not in newest.get_vocab()


def test_what_was_loaded_once_is_there_without_a_network(
    models: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = lc.load_pretrained(f"{NAME}@step0")(TOKENS)
    with hub_server() as gone:
        pass
    n_asked = len(models.asked)
    for setting, value in (("HF_HUB_OFFLINE", True), ("ENDPOINT", gone.url)):
        with monkeypatch.context() as without:
            without.setattr(constants, setting, value)
            begin = monotonic()
            assert torch.equal(lc.load_pretrained(f"{NAME}@step0")(TOKENS), wanted)
            for name in (NAME, f"{NAME}@step1000", "lab/other"):
                with pytest.raises(ArtifactError, match=(
                        r"could not be fetched from the Hugging Face hub \(.*\), nor is there a "
                        "copy in its cache; expected a network, or a folder")):
                    lc.load_pretrained(name)
            assert monotonic() - begin < 60.0
    assert len(models.asked) == n_asked


def _without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in names}


@pytest.mark.parametrize(("name", "change", "message"), [
    (f"{NAME}@step100", {}, r"model 'lab/tiny' has no revision 'step100'; expected a branch, a tag "
     r"or a commit of http.*/lab/tiny/tree/main"),
    (f"{NAME}@0123456789abcdef", {}, "has no revision '0123456789abcdef'"),
    ("lab/none", {}, "there is none of that name, or it is private"),
    (NAME, {"gated": True}, "model 'lab/tiny' is gated; expected the token of an account"),
    (NAME, {"lacks": ["config.json"]}, "model 'lab/tiny' holds no config.json"),
    (NAME, {"lacks": ["model.safetensors"]}, "model 'lab/tiny' holds no weights"),
    (NAME, {"lacks": ["tokenizer.json", "tokenizer_config.json"]}, "holds no tokenizer"),
    (NAME, {"pickled": True}, r"holds no weights in safetensors; expected model.safetensors, .* a "
     r"pull request has both: revision='refs/pr/1'"),
    (NAME, {"broken": {"info": 500}}, "could not be fetched from the Hugging Face hub"),
    (NAME, {"broken": {"info": 429}}, "could not be fetched from the Hugging Face hub"),
    ("hf://lab/tiny@step0", {}, r"of runs and codes; expected the name alone, 'lab/tiny@step0'"),
    ("lab/tiny@", {}, "revision of model 'lab/tiny' is ''; expected a branch, a tag or a commit"),
    ("lab/tiny@../secret", {}, "revision of model 'lab/tiny' is '../secret'"),
])
def test_what_the_hub_does_not_have_is_one_clear_error(
    models: Hub, name: str, change: dict[str, Any], message: str
) -> None:
    repo = models.repos["models", NAME]
    files = repo.commits[-1]
    if "pickled" in change:
        repo.commits[-1] = {**_without(files, "model.safetensors"), "pytorch_model.bin": b"\0"}
    repo.commits[-1] = _without(repo.commits[-1], *change.get("lacks", ()))
    repo.gated = "gated" in change
    models.broken = dict(change.get("broken", {}))
    models.asked.clear()
    with pytest.raises((ArtifactError, ConfigError), match=message) as raised:
        lc.load_pretrained(name)
    assert len(str(raised.value).splitlines()) == 1
    # No weights were fetched, and nobody waited for what is not there.
    assert not any("GET" in asked and "safetensors" in asked for asked in models.asked)
    assert len(models.asked) < 12


def test_weights_that_cannot_be_used_are_refused_before_they_are_read(
    models: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "available_memory", lambda device: 50_000)
    models.asked.clear()
    with pytest.raises(ConfigError, match=(
            r"the 42,752 weights of model 'lab/tiny' take 167 KiB in float32, and cpu has "
            r"48\.83 KiB left; expected a smaller model, or a machine with more memory")):
        lc.load_pretrained(NAME)
    monkeypatch.setattr(pretrained, "available_memory", lambda device: 150_000)
    with pytest.raises(ConfigError, match=r"expected dtype='bfloat16' \(83\.5 KiB\), a smaller"):
        lc.load_pretrained(NAME)
    assert not any("model.safetensors" in asked for asked in models.asked)
    lc.load_pretrained(NAME, dtype="bfloat16")
    assert any("model.safetensors" in asked for asked in models.asked)
