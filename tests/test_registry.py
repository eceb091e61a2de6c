"""Do names that users add to stand beside those of the library, and is every other one refused?"""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path

import pytest

from latentcode.errors import ConfigError, UnknownNameError
from latentcode.registry import NOWHERE, Registry, Source


def double(x: float) -> float:
    return 2 * x


@pytest.fixture
def registry() -> Registry[object]:
    return Registry("function", "lc.register_function", {"identity": abs})


def test_a_name_is_found_with_the_file_that_it_comes_from(registry: Registry[object]) -> None:
    registry.add("double", double)
    assert registry.find("double") is double
    assert list(registry) == ["identity", "double"]
    assert registry.file("double") == "tests.test_registry"
    assert registry.file("identity") is None


@pytest.mark.parametrize("file", ["<string>", "/tmp/ipykernel_4242/1234567.py", "my-script.py"])
def test_a_name_of_a_notebook_has_no_file(registry: Registry[object], file: str) -> None:
    code = compile("registry.add('f', abs)", file, "exec")
    exec(code, {"__name__": "__main__", "registry": registry})
    assert registry.source("f") == Source(NOWHERE)


def test_who_registers_a_name_is_where_it_comes_from(
    registry: Registry[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "registers_in_package"
    package.mkdir()
    (package / "__init__.py").write_text("def register(registry): registry.add('a', abs)\n")
    (package / "part.py").write_text("def register(registry): registry.add('b', len)\n")
    (tmp_path / "registers_alone.py").write_text(
        "from functools import partial\n"
        "def register(registry): registry.add('c', partial(max, 0))\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {}
    for name, module in zip("abc", ("registers_in_package", "registers_in_package.part",
                                    "registers_alone"), strict=True):
        import_module(module).register(registry)
        source = registry.source(name)
        assert source.module == (module, str(tmp_path))
        assert source.digest is not None
        found[name] = source.file
    assert found == {"a": "registers_in_package", "b": "registers_in_package.part",
                     "c": "registers_alone.py"}


def test_a_taken_name_is_refused_unless_it_is_replaced(registry: Registry[object]) -> None:
    registry.add("double", double)
    taken = r"registered already, in tests\.test_registry"
    with pytest.raises(ConfigError, match=taken):
        registry.add("double", abs)
    assert registry.find("double") is double
    registry.add("double", test_a_taken_name_is_refused_unless_it_is_replaced,
                 replace=True)
    assert registry.find("double") is test_a_taken_name_is_refused_unless_it_is_replaced


@pytest.mark.parametrize("replace", [False, True])
def test_a_name_of_the_library_is_never_replaced(
    registry: Registry[object], replace: bool
) -> None:
    with pytest.raises(ConfigError, match="'identity' comes with latentcode"):
        registry.add("identity", double, replace=replace)
    assert registry.find("identity") is abs


@pytest.mark.parametrize("name", ["", "Double", "my-name", "../x", "2x", "a b", 3, None])
def test_a_name_is_one_that_files_can_carry(registry: Registry[object], name: object) -> None:
    with pytest.raises(ConfigError, match="expected lower-case letters"):
        registry.add(name, double)  # type: ignore[arg-type]


def test_an_unknown_name_says_how_one_is_registered(registry: Registry[object]) -> None:
    message = r"'cube'; expected one of: identity; one .* is registered with lc\.register_function"
    with pytest.raises(UnknownNameError, match=message) as caught:
        registry.find("cube")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
