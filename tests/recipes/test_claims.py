"""Claims: each is checked against the record, with its margin and the spread over seeds."""

import copy
import json
from dataclasses import replace

import pytest
from making import RECORD, a_record

import mapformers as mf
from mapformers.cli.main import main
from mapformers.evaluation.aggregate import summarise
from mapformers.recipes import At, Claim, GridMeasure, Splits
from mapformers.recipes.claims import check, claims_sentence, claims_table, claims_that_fail, pooled
from mapformers.recipes.pages import recipe_page, recipe_section

MAPWM, ROPE = At("MapWM", "1D", "iid"), At("RoPE (tiny)", "1D", "iid")
GRID = GridMeasure("steps", (4, 8), "grid", (3, 5))
AHEAD = Claim("MapWM is ahead.", better=MAPWM, worse=ROPE, margin=0.4)
SOLVED = Claim("MapWM solves it.", better=MAPWM, at_least=0.99, finding="Two seeds of few sequences.")
LINES = ("RoPE (tiny)", "MapWM", "player: best-lag")
UNKNOWN = Claim("RoPE is far behind.", better=ROPE, at_most=0.2)


def verdicts(recipe, record, *claims):
    return [check(claim, recipe, record).verdict for claim in claims]


def test_a_difference_is_held_against_its_margin_and_the_spread(mini):
    found = check(AHEAD, mini, RECORD)
    assert found.measured == pytest.approx(0.5) and found.spread == pytest.approx(0.125 * 2**0.5)
    assert found.verdict == "holds, within the spread"  # 0.1 above its margin
    assert verdicts(mini, RECORD, replace(AHEAD, margin=0.1)) == ["holds"]
    assert verdicts(mini, RECORD, replace(AHEAD, margin=0.5)) == ["does not hold, within the spread"]  # not more than
    assert verdicts(mini, RECORD, replace(AHEAD, better=ROPE, worse=MAPWM)) == ["does not hold"]


def test_the_spread_says_where_it_is_of_one_side_alone(mini):
    record = {**RECORD, "players": {"1D": {"best-lag": {"iid": 0.25}}}}
    spread = {line: check(replace(AHEAD, worse=At(line, "1D", "iid")), mini, record).spread_text for line in LINES}
    assert spread == {"RoPE (tiny)": "0.177, RoPE (tiny) has one seed", "MapWM": "0.177", "player: best-lag": "0.177"}


def test_thresholds_include_their_value(mini):
    record = a_record(("MapWM", 0, 0.5, 0.25))
    at_least, at_most = (Claim("", MAPWM, at_least=0.5), Claim("", MAPWM, at_most=0.5))
    assert verdicts(mini, record, at_least, at_most) == ["holds", "holds"]
    assert verdicts(mini, record, replace(at_least, at_least=0.51), replace(at_most, at_most=0.49)) == (
        ["does not hold"] * 2
    )
    assert check(at_least, mini, record).spread_text == "one seed"


def test_what_was_not_measured_is_neither_true_nor_false(mini):
    assert verdicts(mini, a_record(("MapWM", 0, 0.5, 0.25)), AHEAD, UNKNOWN) == ["not measured"] * 2
    diverged = copy.deepcopy(RECORD)
    diverged["runs"][0]["splits"]["iid"]["accuracy"]["value"] = None
    assert verdicts(mini, diverged, AHEAD) == ["not measured"]


def test_where_smaller_is_better_so_is_the_better_one(mini):
    lower = replace(mini, measures=(Splits(mini.splits, lower_is_better=True),))
    assert check(AHEAD, lower, RECORD).measured == pytest.approx(-0.5)


def test_the_pooled_spread_is_that_of_the_seeds_around_their_own_mean():
    one, two = [0.1, 0.3, 0.5], [0.7, 0.9]
    squares = sum((v - 0.3) ** 2 for v in one) + sum((v - 0.8) ** 2 for v in two)
    assert pooled([summarise(one), summarise(two)]) == pytest.approx((squares / 3) ** 0.5)
    assert pooled([summarise([0.1]), summarise([0.5])]) is None


def test_a_claim_may_be_about_a_place_of_a_grid(mini):
    there = At("MapWM", "1D", grid="steps x grid", row=8, column=3)
    claim = Claim("It carries over.", better=there, at_least=0.6)
    recipe = replace(mini, measures=(*mini.measures, GRID), claims=(claim,))
    record = copy.deepcopy(RECORD)
    assert verdicts(recipe, record, claim) == ["not measured"]
    for run, value in zip(record["runs"], (0.5, 0.9)):
        grid = {"axes": {"steps": [4, 8], "grid": [3, 5]}, "metric": "accuracy", "values": [[0, 0], [value, None]]}
        run["measures"] = {"steps x grid": grid}
    assert check(claim, recipe, record).measured == pytest.approx(0.7)
    assert claim.compared(recipe) == "MapWM, 1D, steps x grid at 8, 3"
    assert verdicts(recipe, record, replace(claim, better=replace(there, column=5))) == ["not measured"]


def test_a_claim_may_be_about_what_is_known_after_so_many_sequences(mini):
    early, late = At("MapWM", "1D", after=500), At("RoPE (tiny)", "1D", after=1600)
    claim = Claim("With three times less data.", better=early, worse=late)
    assert check(claim, mini, RECORD).measured == pytest.approx(0.625 / 2 - 0.125)  # curves: 8, 800, 1600
    assert claim.compared(mini) == ("MapWM, 1D, iid after 500 sequences − RoPE (tiny), 1D, iid after 1,600 sequences")
    for never in (7, 1601):  # before the first point, after the last
        assert verdicts(mini, RECORD, replace(claim, better=replace(early, after=never))) == ["not measured"]
    with pytest.raises(mf.UserError, match="measures no Curve"):
        replace(mini, measures=(Splits(mini.splits),), claims=(claim,))


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (At("MapWN", "1D", "iid"), "no line of 'mini' named 'MapWN'; did you mean 'MapWM'"),
        (At("MapWM", "2D", "iid"), "no world of 'mini' named '2D'; choose one of: 1D"),
        (At("MapWM", "1D", "ood-sparse"), "no split of 'mini' named 'ood-sparse'"),
        (At("MapWM", "1D", grid="length x depth", row=8, column=3), "no grid of 'mini' named 'length x depth'"),
        (At("MapWM", "1D", grid="steps x grid", row=16, column=3), "no steps named '16'; choose one of: 4, 8"),
        (At("MapWM", "1D", grid="steps x grid", row=8, column=4), "no grid named '4'; choose one of: 3, 5"),
    ],
    ids=lambda value: getattr(value, "place", ""),
)
def test_a_claim_about_what_a_recipe_does_not_have_is_refused_when_it_is_made(mini, place, sentence):
    for claim in (Claim("x", better=place, at_least=1.0), Claim("x", better=MAPWM, worse=place)):
        with pytest.raises(mf.UserError, match=sentence):
            replace(mini, measures=(*mini.measures, GRID), claims=(claim,))


def test_a_claim_that_says_nothing_or_two_things_is_refused():
    for wrong in ({}, {"worse": ROPE, "at_least": 0.5}, {"at_least": 0.5, "at_most": 0.9}):
        with pytest.raises(mf.UserError, match="needs one of worse, at_least and at_most"):
            Claim("x", better=MAPWM, **wrong)
    for wrong in ({}, {"split": "iid", "after": 8}, {"split": "iid", "grid": "steps x grid"}):
        with pytest.raises(
            mf.UserError, match="is a split, a grid with its row and column, after so many sequences, or a"
        ):
            At("MapWM", "1D", **wrong)


def test_claims_are_a_table_with_findings_and_a_list_of_those_that_fail(mini):
    recipe = replace(mini, claims=(AHEAD, SOLVED, UNKNOWN))
    table = claims_table(recipe, RECORD)
    assert table.rows == [
        [
            "MapWM is ahead.",
            "MapWM − RoPE (tiny), 1D, iid",
            "+0.500",
            "> 0.4",
            "0.177, RoPE (tiny) has one seed",
            "holds, within the spread",
        ],
        ["MapWM solves it.", "MapWM, 1D, iid", "0.625", "≥ 0.99", "0.177", "does not hold"],
        ["RoPE is far behind.", "RoPE (tiny), 1D, iid", "0.125", "≤ 0.2", "one seed", "holds"],
    ]
    assert table.notes == ["MapWM solves it. Two seeds of few sequences."]
    assert claims_sentence(recipe, RECORD) == "2 of 3 claims hold."
    assert claims_sentence(recipe, a_record(("MapWM", 0, 1.0, 1.0))) == "1 of 3 claims hold, 2 not measured."
    assert claims_that_fail(recipe, RECORD) == (
        "- Does not hold: MapWM solves it (measured 0.625, wanted ≥ 0.99, spread over seeds 0.177). "
        "Two seeds of few sequences."
    )
    twice = replace(mini, claims=(SOLVED, replace(SOLVED, text="It does."), replace(SOLVED, finding="Why not?")))
    measured = "(measured 0.625, wanted ≥ 0.99, spread over seeds 0.177)."
    assert claims_that_fail(twice, RECORD).splitlines() == [
        f"- Does not hold: MapWM solves it {measured} It does {measured} Two seeds of few sequences.",
        f"- Does not hold: MapWM solves it {measured} Why not?",
    ]
    assert claims_sentence(mini, RECORD) == claims_that_fail(mini, RECORD) == ""


def test_claims_are_on_both_pages_and_printed(mini, tmp_path, capsys, monkeypatch):
    recipe = replace(mini, claims=(AHEAD, SOLVED))
    section, page = recipe_section(recipe, RECORD), recipe_page(recipe, RECORD)
    assert "1 of 2 claims hold." in section and "- Does not hold: MapWM solves it (measured" in section
    assert section.count("|---") == 1
    assert "## Claims" in page and "| MapWM is ahead. | MapWM − RoPE (tiny), 1D, iid | +0.500 |" in page
    assert "## Claims" not in recipe_page(mini, RECORD)
    monkeypatch.setitem(mf.recipes.RECIPES._entries, "mini", recipe)
    (tmp_path / "mini.json").write_text(json.dumps(RECORD))
    assert main(["report", "mini", "--results", str(tmp_path), "--format", "csv"]) == 0
    assert 'MapWM solves it.,"MapWM, 1D, iid",0.625,≥ 0.99,0.177,does not hold' in capsys.readouterr().out
