"""`latentcode train`, and what `extract`, `decode` and `show` make of the run."""

from pathlib import Path

import pytest

import latentcode as lc
from latentcode.cli import main
from latentcode.config import to_yaml
from latentcode.probes.decoding import DecodingResult

LITTLE = ["--preset", "smoke", "--training.steps", "4", "--training.warmup-steps", "1",
          "--training.eval-every", "4"]


def test_train_extract_decode_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    main(["train", "logic", "--kind", "linear", "--out", str(folder), *LITTLE,
          "--task.n-variables", "4", "--task.n-examples", "10"])
    assert f"wrote run {folder}" in capsys.readouterr().out
    config = lc.Run.open(folder).config
    assert config.model.normalization == "none"
    assert (config.model.d_input, config.model.n_buckets, config.training.steps) == (5, 10, 4)
    main(["extract", str(folder), "--out", str(tmp_path / "codes"), "--n", "12", "--pairs", "all"])
    assert f"wrote codes {tmp_path / 'codes'}" in capsys.readouterr().out
    codes = lc.LatentCodes.load(tmp_path / "codes")
    assert codes.scores.shape == (12, 2, 10, 4)
    main(["decode", str(folder), "--out", str(tmp_path / "decoding"), "--labels", "term_1",
          "--pairs", "query->query", "query->example.0", "--n-train", "200", "--n-heldout", "200"])
    out = capsys.readouterr().out
    assert "residual" in out
    assert f"wrote result {tmp_path / 'decoding'}" in out
    result = DecodingResult.load(tmp_path / "decoding")
    assert set(result.table["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert (tmp_path / "decoding" / "figure.png").stat().st_size > 1_000
    for arguments, word in (([str(folder)], "linear on logic"),
                            ([str(tmp_path / "decoding")], "untrained"),
                            ([str(tmp_path / "codes")], "codes"),
                            ([str(folder), "--split", "ood"], "query")):
        main(["show", *arguments])
        assert word in capsys.readouterr().out.lower()


def test_a_configuration_file_sets_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = lc.preset("smoke", "sraven", "hyla")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    command = ["train", "sraven", "--config", str(tmp_path / "config.yaml"), "--out",
               str(tmp_path / "run"), "--training.steps", "12"]
    main(command)
    trained = lc.Run.open(tmp_path / "run").config
    assert trained.training.steps == 12
    assert trained.task == config.task
    assert trained.model == config.model
    assert "finished" not in capsys.readouterr().err
    main([*command, "--resume"])
    assert (f"{tmp_path / 'run'} is finished at step 12; there is nothing left to train\n"
            in capsys.readouterr().err)
