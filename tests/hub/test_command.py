"""`latentcode push`, and commands that take what was pushed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_server import Hub
from small_codes import make_codes

import latentcode as lc
from latentcode.app import server
from latentcode.app.data.catalog import catalog, find_entry
from latentcode.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


def test_runs_and_codes_are_pushed_and_shown(
    run: lc.Run, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["push", str(run.path), "user/tiny", "--private", "--license", "mit"])
    address = capsys.readouterr().out.removeprefix("pushed ").strip()
    assert hub.repos["models", "user/tiny"].private
    main(["push", str(make_codes().save(tmp_path / "codes")), "user/codes"])
    assert capsys.readouterr().out.startswith("pushed hf://datasets/user/codes@")
    for shown, said in (("user/tiny", f"Run('{address}': hyla on logic"),
                        ("datasets/user/codes", "LatentCodes(12 instances")):
        main(["show", f"hf://{shown}"])
        assert capsys.readouterr().out.startswith(said)


def test_questions_take_an_address(
    pushed: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["extract", "hf://user/tiny", "--n", "4", "--out", str(tmp_path / "codes")])
    codes = lc.LatentCodes.load(tmp_path / "codes")
    assert codes.meta["run"] == "user/tiny"
    assert codes.meta["run_loaded_from"] == lc.load_run("hf://user/tiny").loaded_from
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["decode", "hf://user/none", "--out", str(tmp_path / "result")])
    assert capsys.readouterr().err.startswith("error: hf://user/none does not exist on http://")


def test_the_explorer_opens_a_copy(
    pushed: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[Path, list[tuple[str, str]]] = {}

    def serve(folders: list[Path], **_: object) -> int:
        for folder in folders:
            found = [find_entry(entry.key, folders) for entry in catalog([folder])]
            shown[folder] = [(entry.key, entry.kind) for entry in found if entry.kind != "zoo"]
        return 0

    monkeypatch.setattr(server, "serve", serve)
    codes = make_codes().save(tmp_path / "codes")
    main(["explore", "hf://user/tiny", str(codes)])
    assert list(shown.values()) == [[("tiny", "run")], [("codes", "codes")]]
    assert [folder.exists() for folder in shown] == [False, True]
