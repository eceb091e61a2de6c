"""Do names that users add to stand beside those of the library, and is every other one refused?"""

from __future__ import annotations

import pickle

import pytest

from latentcode.errors import ConfigError, UnknownNameError
from latentcode.registry import Registry


def double(x: float) -> float:
    return 2 * x


@pytest.fixture
def registry() -> Registry[object]:
    return Registry("function", "lc.register_function", {"identity": abs})


def test_a_name_is_found_with_the_file_that_it_comes_from(registry: Registry[object]) -> None:
    registry.add("double", double, source=double)
    assert registry.find("double") is double
    assert list(registry) == ["identity", "double"]
    assert registry.file("double") == "test_registry.py"
    assert registry.file("identity") is None


def test_a_name_of_an_interpreter_has_no_file(registry: Registry[object]) -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    exec("def f(x): return x", space)
    registry.add("f", space["f"], source=space["f"])
    assert registry.file("f") in ("<string>", "a notebook or an interpreter")


def test_a_taken_name_is_refused_unless_it_is_replaced(registry: Registry[object]) -> None:
    registry.add("double", double, source=double)
    with pytest.raises(ConfigError, match=r"'double' is registered already, in test_registry\.py"):
        registry.add("double", abs, source=double)
    assert registry.find("double") is double
    registry.add("double", test_a_taken_name_is_refused_unless_it_is_replaced, source=double,
                 replace=True)
    assert registry.find("double") is test_a_taken_name_is_refused_unless_it_is_replaced


@pytest.mark.parametrize("replace", [False, True])
def test_a_name_of_the_library_is_never_replaced(
    registry: Registry[object], replace: bool
) -> None:
    with pytest.raises(ConfigError, match="'identity' comes with latentcode"):
        registry.add("identity", double, source=double, replace=replace)
    assert registry.find("identity") is abs


@pytest.mark.parametrize("name", ["", "Double", "my-name", "../x", "2x", "a b", 3, None])
def test_a_name_is_one_that_files_can_carry(registry: Registry[object], name: object) -> None:
    with pytest.raises(ConfigError, match="expected lower-case letters"):
        registry.add(name, double, source=double)  # type: ignore[arg-type]


def test_an_unknown_name_says_how_one_is_registered(registry: Registry[object]) -> None:
    message = r"'cube'; expected one of: identity; one .* is registered with lc\.register_function"
    with pytest.raises(UnknownNameError, match=message) as caught:
        registry.find("cube")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
