"""What a claim of a result says and was judged by, in the few words that a table has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COUNTED: Mapping[str, str] = {"agrees": "agree", "differs": "differ", "undecided": "are undecided",
                              "not run": "were not run at this size"}
"""Verdicts in the order of the counts, as verbs of several claims."""


def published(claim: Mapping[str, Any]) -> str:
    """Return the printed number with its error; empty where none is printed."""
    printed = claim["published"]
    if printed is None:
        return ""
    error = "" if printed["error"] is None else f" ± {printed['error']:g}"
    return f"{printed['value']:g}{error}"


def ours(claim: Mapping[str, Any]) -> str:
    """Return what we measured, of several tests the least and the most; empty without a value.

    A number stands in the unit printed, a difference has its sign.
    """
    found = [part["estimate"] for part in claim["parts"] if part["estimate"] is not None]
    if not found:
        return ""
    match claim["rule"]["name"]:
        case "exact":
            held = sum(found)
            said = ("holds" if held == len(found) else "does not hold" if not held
                    else f"holds in {held:g} of {len(found)}")
            return said + (" so far" if claim["verdict"] == "undecided" else "")
        case "welch":
            return f"{claim['published']['value'] + found[0]:.4g}"
        case "bound":
            least, most = f"{min(found):.3g}", f"{max(found):.3g}"
        case _:
            least, most = f"{min(found):+.2g}", f"{max(found):+.2g}"
    return least if least == most else f"{least} to {most}"


def least(claim: Mapping[str, Any]) -> str:
    """Return what a rule asks for, as a number; empty where it asks for none."""
    how = claim["rule"]
    asked = how.get("least", how.get("bound"))
    return "" if asked is None else f"{asked:g}"


def rule(claim: Mapping[str, Any]) -> str:
    """Return the rule of a verdict in a few words."""
    how = claim["rule"]
    match how["name"]:
        case "welch":
            return f"{how['quantity']}: difference within ±{claim['margin']:g}"
        case "permutation" | "permutation_of_changes":
            return f"{how['quantity']}: permutation test over runs"
        case "bound":
            return f"{how['quantity']}: {how['side']} {how['bound']:g}"
        case "excess":
            return (f"{how['quantity']}: in every run above, and by {how['least']:g} on average, "
                    f"{', '.join(how['controls'])}")
    return str(how["holds"])


def by_test(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return what was measured for each of several tests."""
    known = [part for part in parts if part["estimate"] is not None]
    if len(parts) < 2 or not known:
        return ""
    return " By test: " + "; ".join(
        f"{part['name'].removeprefix('kind=')} {part['estimate']:.3g}" for part in known) + "."
