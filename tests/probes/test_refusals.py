"""Is what codes cannot be asked refused by an error that names the thing or the value?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from decoded_codes import decode_codes

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ConfigError, LatentCodeError, ProbeError, UnknownNameError
from latentcode.probes.common.harness import check_controls, check_pair_of_codes
from latentcode.probes.common.labels import make_target
from latentcode.probes.knn_purity import nearest, purity
from latentcode.probes.projection import fit_projection

Planted = Callable[..., LatentCodes]
PAIR = "query->query"
POINTS = np.random.default_rng(0).normal(size=(120, 4))


def decode(planted: Planted, train: LatentCodes | None = None, **settings: object) -> object:
    """Return a decoding without controls of training codes, the planted ones if none are given."""
    asked = {"labels": ["term_1"], "controls": False, **settings}
    return decode_codes(train or planted("train"), planted("ood"), **asked)


def labelled(codes: LatentCodes, **columns: object) -> LatentCodes:
    return replace(codes, labels=codes.labels.assign(**columns))


def target_of(planted: Planted, **columns: object) -> object:
    """Return the target of `term_1` where training has other columns."""
    return target(labelled(planted("train"), **columns), planted("ood"), "term_1")


def target(train: LatentCodes, heldout: LatentCodes, name: str, pair: str = PAIR) -> object:
    return make_target(train.labels, heldout.labels, name, train.pair(pair))


def untrained(planted: Planted) -> tuple[LatentCodes, LatentCodes]:
    return planted("train", strength=0.0), planted("ood", strength=0.0)


def first_layer(codes: LatentCodes) -> LatentCodes:
    return LatentCodes(codes.scores[:, :1], codes.labels, codes.pairs, (0,))


def fewer_heads(codes: LatentCodes) -> LatentCodes:
    return replace(codes, scores=codes.scores[..., 1:])


def backwards(codes: LatentCodes) -> LatentCodes:
    return codes.subset(np.arange(len(codes))[::-1].copy())


def of_run(codes: LatentCodes, run: str) -> LatentCodes:
    return replace(codes, meta={**codes.meta, "run": run})


def align(planted: Planted, *changes: Callable[[LatentCodes], LatentCodes]) -> object:
    """Return an alignment of the planted codes with those that each change makes of them."""
    both = planted("train"), planted("ood")
    others = [tuple(change(codes) for codes in both) for change in changes]
    return lc.align([lc.subject(*codes) for codes in (both, *others)], labels="term_1",
                    controls=False)


REFUSED: list[tuple[Callable[[Planted], object], type[LatentCodeError], str]] = [
    # Controls
    (lambda p: decode(p, controls=True), ProbeError, "without its controls"),
    (lambda p: lc.similarity(p("ood"), label="term_1"), ProbeError, "without its controls"),
    (lambda p: lc.knn_purity(p("ood")), ProbeError, "without its controls"),
    (lambda p: lc.value_networks(p("ood"), labels=["term_1"]), ProbeError, "a model is needed"),
    (lambda p: check_controls([p("ood", residuals=False)], [], True), ProbeError,
     "residual streams"),
    (lambda p: check_controls([p("train", residuals=False)], [untrained(p)[0]], True),
     ProbeError, "residuals=True"),
    (lambda p: check_controls([p("train")], [untrained(p)[0]], False), ProbeError,
     "controls=False"),
    (lambda p: check_controls([p("ood")], [p("ood")], True), ProbeError, "equal the trained ones"),
    (lambda p: lc.similarity(lc.subject(p("ood"), untrained=first_layer(untrained(p)[1])),
                             label="term_1"), UnknownNameError, "unknown layer 1"),
    (lambda p: lc.similarity(lc.subject(p("ood"), untrained=backwards(untrained(p)[1])),
                             label="term_1"), ProbeError, "of other instances: label"),
    # Two sets of codes
    (lambda p: check_pair_of_codes(p("train"), fewer_heads(p("ood")), "codes"), ProbeError,
     "heads of the codes differ: 12"),
    (lambda p: check_pair_of_codes(p("train"), p("ood")[:0], "codes"), ProbeError,
     "held-out part of the codes holds no instances"),
    (lambda p: align(p), ProbeError, "1 model is given"),
    (lambda p: align(p, lambda codes: codes), ProbeError, "expected different names"),
    (lambda p: align(p, lambda codes: of_run(backwards(codes), "b")), ProbeError,
     "codes of b are of other instances"),
    (lambda p: align(p, lambda codes: of_run(fewer_heads(codes), "b")), ProbeError,
     "'heads': 11}, those of the first model"),
    # Names
    (lambda p: decode(p, labels=["rule"]), UnknownNameError, "unknown label 'rule'"),
    (lambda p: lc.similarity(p("ood"), label="rule", controls=False), UnknownNameError, "'rule'"),
    (lambda p: lc.knn_purity(p("ood"), labels=["hue"], controls=False), UnknownNameError, "'hue'"),
    (lambda p: target(p("train"), p("ood"), "term", "a->b"), UnknownNameError, "pair 'a->b'"),
    (lambda p: decode(p, layers=[2]), UnknownNameError, "unknown layer 2"),
    (lambda p: decode(p, layers=[1, 1]), ProbeError, "layers repeats 1"),
    (lambda p: decode(p, widths=[2, 2]), ProbeError, "widths repeats 2"),
    (lambda p: decode(p, labels=["term_1", "term_1"]), ProbeError, "labels repeats term_1"),
    (lambda p: lc.knn_purity(p("ood"), labels=["term_1"] * 2, controls=False), ProbeError,
     "labels repeats term_1"),
    (lambda p: lc.knn_purity(p("ood"), labels=(), controls=False), ProbeError, "no label is given"),
    (lambda p: decode(p, labels=[]), ProbeError, "labels is empty"),
    # Labels
    (lambda p: lc.similarity(p("ood"), label="target", controls=False), ProbeError,
     "a measurement"),
    (lambda p: decode(p, labelled(p("train"), term_1="t1")), ProbeError, "the class 't1'"),
    (lambda p: target_of(p, term_1=[None, *p("train").labels["term_1"][1:]]), ProbeError,
     "1 missing"),
    (lambda p: target_of(p, term_1=1), ProbeError, "mixes values of types int, str"),
    (lambda p: target(*(labelled(codes, serial=range(len(codes))) for codes in (
        p("train", instances=40), p("ood"))), "serial"), ProbeError, "360 different values"),
    (lambda p: purity(POINTS, {"a": np.zeros(120, int)}), ProbeError, "'a' has 1 different values"),
    (lambda p: purity(POINTS, {"a": np.full(120, np.nan)}), ProbeError, "120 missing values"),
    # Points
    (lambda p: decode(p, replace(p("train"), scores=p("train").scores * np.nan)), ConfigError,
     "180 of 180 instances are not all finite"),
    (lambda p: decode(p, labelled(p("train"), combination="all")), ProbeError, "1 combination"),
    (lambda p: purity(POINTS * np.nan, {"a": np.arange(120)}), ProbeError, "not finite"),
    (lambda p: fit_projection(POINTS[:20], perplexity=30.0), ProbeError, "is 30 for 20 points"),
    (lambda p: decode_codes(p("train"), p("ood"), ["term_1"], n_jobs=10**20), ProbeError, "or -1"),
    (lambda p: fit_projection(0 * POINTS), ProbeError, "all points are the same"),
    (lambda p: fit_projection(POINTS * np.nan), ProbeError, "not finite"),
    (lambda p: fit_projection(POINTS[:, 0]), ProbeError, "shape (120,)"),
    # Settings
    (lambda p: decode(p, n_bootstrap=10), ProbeError, "n_bootstrap is 10"),
    (lambda p: decode(p, n_shuffles=0), ProbeError, "n_shuffles is 0"),
    (lambda p: lc.knn_purity(p("ood"), controls=False, k=0), ProbeError, "k is 0"),
    (lambda p: nearest(POINTS[:6], 6), ProbeError, "k is 6 for 6 points"),
    (lambda p: fit_projection(POINTS, perplexity=0.5), ProbeError, "perplexity is 0.5"),
    (lambda p: fit_projection(POINTS, metric="hamming"), UnknownNameError, "metric 'hamming'"),
    (lambda p: fit_projection(POINTS, "magic"), UnknownNameError, "projection 'magic'"),
    (lambda p: fit_projection(POINTS, "pca", perplexity=3.0), UnknownNameError, "'perplexity'"),
]


@pytest.mark.parametrize(("ask", "error", "named"), REFUSED)
def test_what_codes_cannot_be_asked(
    ask: Callable[[Planted], object], error: type[LatentCodeError], named: str, planted: Planted
) -> None:
    with pytest.raises(error) as raised:
        ask(planted)
    assert named in str(raised.value)
