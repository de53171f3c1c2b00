"""Tests of differences, against scipy where it is, and against printed tables where it is not."""

import math
import random

import pytest

from mapformers.errors import UserError
from mapformers.evaluation.significance import incomplete_beta, p_text, paired, t_quantile, t_tails, welch


def draws(n, mean, spread, seed):
    chance = random.Random(seed)
    return [chance.gauss(mean, spread) for _ in range(n)]


@pytest.mark.parametrize(("free", "inside", "printed"), [(1, 0.95, 12.706), (4, 0.95, 2.776), (10, 0.99, 3.169)])
def test_quantiles_are_those_of_the_printed_tables(free, inside, printed):
    assert t_quantile(inside, free) == pytest.approx(printed, abs=5e-4)
    assert t_tails(printed, free) == pytest.approx(1 - inside, abs=1e-4)


def test_simple_values():
    assert incomplete_beta(0.3, 1, 1) == pytest.approx(0.3) and incomplete_beta(0.5, 7.5, 7.5) == pytest.approx(0.5)
    assert t_tails(0.0, 3) == pytest.approx(1.0)
    assert t_tails(1.0, 1) == pytest.approx(0.5)  # Cauchy's quartile


@pytest.mark.parametrize(("n", "m", "shift"), [(5, 5, 0.3), (3, 9, 1.0), (2, 2, 0.0), (40, 7, 3.0)])
def test_welch_is_scipys(n, m, shift):
    stats = pytest.importorskip("scipy.stats")
    a, b = draws(n, shift, 1.0, seed=n), draws(m, 0.0, 2.5, seed=m + 100)
    ours, theirs = welch(a, b), stats.ttest_ind(a, b, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert ours.n == (n, m)


@pytest.mark.parametrize("n", [2, 6, 500])
def test_the_paired_test_is_scipys(n):
    stats = pytest.importorskip("scipy.stats")
    base = draws(n, 5.0, 1.0, seed=1)
    other = [value + noise for value, noise in zip(base, draws(n, 0.05, 0.1, seed=2))]
    ours, theirs = paired(other, base), stats.ttest_rel(other, base)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_pairs_tell_apart_what_groups_cannot():
    base = draws(50, 5.0, 1.0, seed=3)
    better = [value - 0.02 for value in base]
    noisy = [value + noise for value, noise in zip(better, draws(50, 0.0, 0.01, seed=4))]
    assert paired(noisy, base).p < 1e-6 and welch(noisy, base).p > 0.5


def test_equal_figures_differ_by_nothing():
    assert paired([1.0, 2.0], [1.0, 2.0]).p == 1.0 and welch([1.0, 1.0], [1.0, 1.0]).p == 1.0
    assert welch([1.0, 1.0], [2.0, 2.0]).p == 0.0


def test_logarithms_become_ratios():
    found = welch([math.log(98.0), math.log(98.2)], [math.log(100.0), math.log(100.2)]).as_ratio()
    assert found.mean == pytest.approx(-0.02, abs=1e-3) and found.low < found.mean < found.high


def test_a_ratio_that_is_too_large_for_a_number_is_infinite():
    assert welch([800.0, 801.0], [1.0, 1.1]).as_ratio().high == math.inf


@pytest.mark.parametrize("test", [welch, paired])
def test_figures_that_are_not_finite_have_no_difference(test):
    found = test([math.inf, 1.0], [1.0, 1.0]).as_ratio()
    assert all(math.isnan(value) for value in (found.mean, found.low, found.high, found.p))
    assert p_text(found.p) == "–"


def test_too_few_figures_are_refused():
    with pytest.raises(UserError, match="at least two figures on each side"):
        welch([1.0], [1.0, 2.0])
    with pytest.raises(UserError, match="as many figures on both sides, not 1 and 2"):
        paired([1.0], [1.0, 2.0])
