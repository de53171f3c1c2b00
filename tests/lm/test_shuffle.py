"""The order of windows: a permutation, computed at any place, that looks like chance and never changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapformers import UserError
from mapformers.lm.shuffle import Shuffle


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_every_number_stands_at_one_place(n, key):
    assert sorted(Shuffle(n, key)(np.arange(n)).tolist()) == list(range(n))


@given(st.integers(1, 2**61), st.integers(0, 2**64 - 1), st.data())
def test_any_place_of_a_long_order_is_computed_alone(n, key, data):
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8, unique=True)))
    order = Shuffle(n, key)
    found = order(places)
    assert ((found >= 0) & (found < n)).all() and len(set(found.tolist())) == len(places)
    assert [int(order(place[None])[0]) for place in places] == found.tolist()


def test_the_order_is_pinned():
    """Another order would change the data of every run ever made."""
    assert Shuffle(10, 0)(np.arange(10)).tolist() == [4, 6, 9, 2, 1, 8, 5, 3, 0, 7]
    assert Shuffle(10**10, 7)(np.array([0, 1, 10**9, 10**10 - 1])).tolist() == [
        8326341333,
        8886321878,
        145990291,
        7406410292,
    ]


def test_small_orders_are_all_about_equally_frequent():
    """Every number at every place, over many keys: no count is further from its mean than chance allows (5σ)."""
    keys, n = 2000, 6
    found = np.stack([Shuffle(n, key)(np.arange(n)) for key in range(keys)])
    counts = np.stack([(found == number).sum(axis=0) for number in range(n)])
    deviation = np.sqrt(keys / n * (1 - 1 / n))
    assert np.abs(counts - keys / n).max() < 5 * deviation


def test_neighbours_are_far_apart_and_keys_and_orders_have_nothing_in_common():
    n = 20_000
    one, other = (Shuffle(n, key)(np.arange(n)) for key in (1, 2))
    places = np.arange(n)
    for a, b in ((one, places), (one, other), (one[:-1], one[1:])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)
    assert (one == other).sum() < 12 and (one == places).sum() < 12  # 1 expected
    assert abs(np.abs(np.diff(one)).mean() / n - 1 / 3) < 0.01


def test_what_has_no_order_is_refused():
    for n in (0, 2**62):
        with pytest.raises(UserError, match="An order is of 1 to 2"):
            Shuffle(n, 0)
    for place in (-1, 5):
        with pytest.raises(UserError, match="The places of this order are 0 to 4"):
            Shuffle(5, 0)(np.array([place]))
