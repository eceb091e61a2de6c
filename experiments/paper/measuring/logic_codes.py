"""Whose codes do Fig. 2B, 2D and A2 show, and of which inputs? Two settings, two readings each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latentcode.experiments.paper.claims import Claim, Excess, Setting
from latentcode.experiments.paper.reproduction import KINDS, Work
from latentcode.runs import Run

PUBLISHED = Setting("paper", "logic", (KINDS,))
OF_CODE = Setting("paper", "logic", (KINDS, "task.n_examples=96", "task.ood_fraction=0.5"))
"""In which the authors' code keeps codes (its sweeps/logic_latent.yaml)."""
SMOKE = Setting("smoke", "logic", (KINDS,))
SHOWS: Mapping[str, tuple[Setting, ...]] = {
    "paper": (PUBLISHED, OF_CODE), "small": (PUBLISHED,), "smoke": (SMOKE,)}
TITLES: Mapping[Setting, str] = {
    PUBLISHED: "sequence 32, 70 % held out", OF_CODE: "sequence 96, 50 % held out",
    SMOKE: "smoke"}
SUFFIXES: Mapping[Setting, str] = {OF_CODE: "_codes"}
"""Setting -> how its figures and tables are told from those of Table A1."""
READINGS: Mapping[str, str] = {
    "fixed_context": "one context, the query varies",
    "fixed_query": "one query, the context varies"}
"""What all instances share: as section 3.2 of the paper says, and as the authors' code stores the
codes of held-out functions (callbacks.py, lines 111 to 114)."""
NOTE = ("Two readings: with one context the query varies, which is the text of section 3.2; with "
        "one query the context varies, which is what the released code stores of held-out "
        "functions (callbacks.py, lines 111 to 114; it has no such store with one context).")


def reading(claim: Claim) -> str:
    """Return what all instances of a claim share, as its quantity says."""
    assert isinstance(claim.rule, Excess), claim.id
    return "fixed_query" if "one shared query" in claim.rule.quantity else "fixed_context"


def runs_by_setting(work: Work) -> Iterator[tuple[Setting, list[tuple[str, Run]]]]:
    """Yield (setting, its finished runs with the names of their members), where there are any."""
    for setting in SHOWS[work.preset]:
        runs = list(work.runs_of(setting))
        if runs:
            yield setting, runs
