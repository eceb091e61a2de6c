"""The command line: it does what it says, says where it wrote what, and errors are one line."""

import subprocess
import sys
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main

LITTLE = ["--preset", "smoke", "--training.steps", "4", "--training.warmup-steps", "1",
          "--training.eval-every", "4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    return lc.train(lc.preset("smoke", "logic", "softmax"),
                    tmp_path_factory.mktemp("runs") / "softmax", progress=False)


def test_train_extract_probe_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    main(["train", "logic", "--kind", "linear", "--out", str(folder), *LITTLE,
          "--task.n-variables", "4", "--task.n-examples", "10"])
    assert f"wrote run {folder}" in capsys.readouterr().out
    config = lc.Run.open(folder).config
    assert config.model.normalization == "none"
    assert (config.model.d_input, config.model.n_buckets, config.training.steps) == (5, 10, 4)
    main(["extract", str(folder), "--out", str(tmp_path / "codes"), "--n", "12", "--pairs", "all",
          "--inputs", "fixed_context"])
    assert f"wrote codes {tmp_path / 'codes'}" in capsys.readouterr().out
    codes = lc.LatentCodes.load(tmp_path / "codes")
    assert codes.scores.shape == (12, 2, 10, 4)
    assert codes.meta["task"]["inputs"] == "fixed_context"
    main(["decode", str(folder), "--out", str(tmp_path / "probe"), "--labels", "term_1",
          "--pairs", "query->query", "query->example.0", "--n-train", "200", "--n-heldout", "200"])
    out = capsys.readouterr().out
    assert "residual" in out
    assert f"wrote result {tmp_path / 'probe'}" in out
    result = lc.DecodingResult.load(tmp_path / "probe")
    assert set(result.table["source"]) == {"code", "residual", "untrained", "shuffled"}
    assert (tmp_path / "probe" / "figure.png").stat().st_size > 1_000
    for arguments, word in (([str(folder)], "linear on logic"),
                            ([str(tmp_path / "probe")], "untrained"),
                            ([str(tmp_path / "codes")], "codes"),
                            ([str(folder), "--split", "ood"], "query")):
        main(["show", *arguments])
        assert word in capsys.readouterr().out.lower()


def test_a_configuration_file_sets_everything(tmp_path: Path) -> None:
    from latentcode.config import to_yaml

    config = lc.preset("smoke", "sraven", "hyla")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    main(["train", "sraven", "--config", str(tmp_path / "config.yaml"), "--out",
          str(tmp_path / "run"), "--training.steps", "12"])
    trained = lc.Run.open(tmp_path / "run").config
    assert trained.training.steps == 12
    assert trained.task == config.task
    assert trained.model == config.model


@pytest.mark.parametrize(("arguments", "message"), [
    (["train", "logic", "--kind", "hylla", "--out", "x"],
     "error: unknown attention kind 'hylla'; expected one of: softmax, linear, hyla"),
    (["train", "logic", "--out", "x", "--training.device", "cuda:99"], "error: device is"),
    (["train", "logic", "--out", "x", "--task.ood-fraction", "0.99"],
     "the largest possible fraction"),
    (["train", "logic", "--out", "x", "--model.d-model", "0"], "model.d_model is 0"),
    (["train", "sraven", "--config", "nowhere.yaml", "--out", "x"], "nowhere.yaml"),
    (["show", "nowhere"], "nowhere"),
    (["decode", "nowhere", "--out", "y"], "nowhere"),
])
def test_errors_are_one_line_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.strip()
    # The parser draws a box around what it finds wrong itself; ours are one line.
    assert message in " ".join(error.split())
    assert len(error.splitlines()) == 1 or error.startswith("Value error")
    assert not list(tmp_path.iterdir())


def test_no_choice_is_silently_ignored(
    run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(run.path / "config.yaml")
    out = str(tmp_path / "x")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "meta.json").write_text("{}")
    for arguments, message in (
        (["train", "logic", "--config", config, "--kind", "hyla", "--out", out], "together with"),
        (["train", "--out", "logic", "--preset", "smoke", "sraven"], "as the first word"),
        (["train", "logic", "--preset", "smoke", "--out", out, "--model.d-input", "9"],
         "model.d_input is 9; expected 4"),
        (["extract", str(run.path), "--out", out, "--untrained", "--device", "cuda:99"], "device"),
        (["extract", str(run.path), "--out", str(tmp_path / "taken")], "exists already"),
        (["decode", str(run.path), "--out", str(tmp_path / "taken")], "exists already"),
        (["show", str(run.path), "--split", "ood", "--index", "-2"], "--index is -2"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in " ".join(capsys.readouterr().err.split()), arguments
    assert not (tmp_path / "x").exists()


def test_errors_about_a_run_name_what_is_valid(
    run: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        (["extract", str(run.path), "--out", str(tmp_path / "x"), "--pairs", "q->k"],
         "unknown pair 'q->k'; expected one of: query->query"),
        (["extract", str(run.path), "--out", str(tmp_path / "x"), "--layers", "7"],
         "unknown layer 7; expected one of: 0, 1"),
        (["decode", str(run.path), "--out", str(tmp_path / "x"), "--labels", "colour"],
         "unknown label 'colour'"),
        (["train", "logic", "--preset", "smoke", "--out", str(run.path)], "already holds a run"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_help_imports_no_torch() -> None:
    code = ("import sys, contextlib, io\nfrom latentcode.cli import main\n"
            "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
            "    main(['--help'])\n"
            "assert not {'torch', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "latentcode.cli", "show", "nowhere"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown model 'nowhere'; expected one of: ")
