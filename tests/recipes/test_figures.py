"""Figures: what each view draws, from records made by hand."""

import copy
from dataclasses import replace

import pytest
from making import RECORD
from matplotlib.figure import Figure

import mapformers as mf
from mapformers.recipes import BarView, CurveView, GridMeasure, GridView, LineView, SliceView, Splits
from mapformers.recipes.pages import page_views, recipe_page
from mapformers.recipes.views.curves import mean_curve
from mapformers.reports import bars, heat_maps, series
from mapformers.reports.heat_maps import short
from mapformers.reports.learning_curves import draw_curves
from mapformers.reports.style import COLOURS, line_of, marker_of

PNG = b"\x89PNG"
GRID = GridMeasure("steps", (4, 8, 16), "grid", (3, 5), label="recall")


@pytest.fixture
def drawn(monkeypatch):
    """What is handed to the drawing functions: name -> arguments; the pictures are drawn all the same."""
    seen = {}
    for module, name in ((bars, "draw_bars"), (heat_maps, "draw_heat_maps"), (series, "draw_series")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, real=real, name=name: (seen.update({name: args}), real(*args))[1]
        )
    return seen


def draw(view, recipe, record, folder):
    [(name, function)] = view.plots(recipe, record).items()
    function(folder / name)
    assert (folder / name).read_bytes().startswith(PNG)
    return name


def with_grid(mini):
    recipe = replace(mini, measures=(*mini.measures, GRID))
    record = copy.deepcopy(RECORD)
    for run, shift in zip(record["runs"], (0.0, 0.2, 0.4)):
        values = [[0.5 + shift, 0.4 + shift], [0.3 + shift, 0.9 if shift else None], [0.1 + shift, 0.2 + shift]]
        axes = {"steps": [4, 8, 16], "grid": [3, 5]}
        run["measures"] = {"recall": {"axes": axes, "metric": "accuracy", "values": values}}
    return recipe, record


def test_bars_of_all_splits_have_a_group_per_row_and_the_papers_figure(mini, tmp_path, drawn):
    assert draw(BarView(), mini, RECORD, tmp_path) == "mini-bars.png"
    panels = drawn["draw_bars"][0]
    assert list(panels) == ["1D"] and list(panels["1D"]) == ["RoPE (tiny)", "MapWM"]
    assert panels["1D"]["MapWM"] == {
        "IID": (0.625, pytest.approx(0.125 * 2**0.5), 0.75),
        "Dense": (0.25, 0.0, None),
    }


def test_bars_over_a_sweep_need_a_split():
    with pytest.raises(mf.UserError, match="shows one split"):
        BarView(over="head_dim")


def test_a_slice_goes_through_the_grid_along_either_side(mini, tmp_path, drawn):
    recipe, record = with_grid(mini)
    view = SliceView(GRID, along="steps", at=5, trained=8)
    assert draw(view, recipe, record, tmp_path) == "mini-recall-steps-at-grid-5.png"
    panels, _, frame = drawn["draw_series"]
    middle = pytest.approx(0.02**0.5)
    assert panels["1D"]["MapWM"].points == [(4, pytest.approx(0.5), middle), (16, pytest.approx(0.3), middle)]
    assert (frame.xlabel, frame.ylabel, frame.shaded_to) == ("steps", "accuracy at grid 5", 8)
    assert draw(SliceView(GRID, along="grid", at=16), recipe, record, tmp_path) == "mini-recall-grid-at-steps-16.png"
    assert [x for x, *_ in drawn["draw_series"][0]["1D"]["RoPE (tiny)"].points] == [3, 5]
    assert view.caption == "recall by steps at grid 5"


@pytest.mark.parametrize(
    ("along", "at", "sentence"),
    [("length", 5, "goes along steps or grid, not 'length'"), ("steps", 4, "has no grid 4; choose one of 3, 5")],
)
def test_a_slice_that_the_grid_does_not_have_is_refused(along, at, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        SliceView(GRID, along=along, at=at)


def test_heat_maps_share_one_figure_and_its_cells_are_printed(mini, tmp_path, drawn):
    recipe, record = with_grid(mini)
    assert draw(GridView(GRID), recipe, record, tmp_path) == "mini-recall.png"
    panels = drawn["draw_heat_maps"][0]
    assert list(panels) == ["RoPE (tiny)", "MapWM"] and panels["MapWM"][1] == [pytest.approx(0.4), None]
    assert [short(value) for value in (0.0, 0.05, 0.984, 0.995, 1.0)] == [".00", ".05", ".98", "1", "1"]


def test_two_metrics_over_the_same_settings_need_labels_and_old_records_are_read(mini):
    plain = replace(GRID, label=None)
    kept = {"axes": {"steps": [4, 8, 16], "grid": [3, 5]}, "metric": "accuracy", "values": [[0.5, 0.5]] * 3}
    old = {"measures": {"steps x grid": kept}}
    assert plain.fits(plain.of(old)) and plain.at(old, 8, 5) == 0.5 and GRID.of(old) is None
    replace(mini, measures=(*mini.measures, plain, GRID))
    with pytest.raises(mf.UserError, match="Two measures of recipe 'mini' have the same name"):
        replace(mini, measures=(*mini.measures, plain, replace(plain, metric="accuracy_all_revisits")))


def test_curves_together_are_means_over_seeds_where_all_have_a_point(mini, tmp_path, drawn):
    assert draw(CurveView(together=True), mini, RECORD, tmp_path) == "mini-learning.png"
    panels, _, frame = drawn["draw_series"]
    assert frame.log and not frame.markers and frame.goal == 0.99
    assert panels["1D"]["MapWM"].points[-1] == (1600, 0.625, pytest.approx(0.125 * 2**0.5))
    assert mean_curve([[(1, 0.0), (2, 1.0)], [(2, 0.5), (3, 1.0)]]) == [(2, 0.75, pytest.approx(0.125**0.5))]
    assert mean_curve([]) == []
    draw(CurveView(together=True), replace(mini, worlds={**mini.worlds, "2D": {"dims": 2}}), RECORD, tmp_path)
    assert list(drawn["draw_series"][0]) == ["1D"], "a world without runs has no panel"


def test_a_sweep_over_numbers_is_lines(mini, tmp_path, drawn):
    recipe = replace(
        mini,
        sweep={"head_dim": (16, 64)},
        measures=(Splits(mini.splits),),
        paper={("MapWM, head_dim=64", "1D", "iid"): (0.9, 0.01)},
        finding="",
    )
    runs = [{**run, "sweep": {"head_dim": size}} for run in RECORD["runs"] for size in (16, 64)]
    record = {**RECORD, "runs": runs}
    assert draw(LineView("head_dim", log=True), recipe, record, tmp_path) == "mini-iid-over-head_dim.png"
    panels, _, frame = drawn["draw_series"]
    assert frame.log and frame.xlabel == "head_dim"
    found = panels["1D"]["MapWM"]
    assert [point[:2] for point in found.points] == [(16, 0.625), (64, 0.625)] and found.paper == [(64, 0.9)]
    with pytest.raises(mf.UserError, match="sweeps no 'steps'"):
        LineView("steps").plots(recipe, record)


def test_a_view_of_nothing_measured_draws_nothing(mini):
    empty = {"recipe": "mini", "scale": "cpu", "runs": []}
    for view in (BarView(), SliceView(GRID, "steps", 3), GridView(GRID), CurveView(together=True)):
        assert view.plots(mini, empty) == {}


def test_a_page_shows_how_runs_learned_even_if_the_recipe_does_not_say_so(mini):
    assert mini.curve is not None and not any(isinstance(view, CurveView) for view in mini.views)
    assert "(../images/mini-curves.png)" in recipe_page(mini, RECORD)
    shown = replace(mini, views=(*mini.views, CurveView()))
    assert page_views(shown) == list(shown.views)
    assert page_views(replace(mini, measures=(Splits(mini.splits),))) == list(mini.views)


def test_a_curve_of_two_points_is_not_drawn(mini):
    record = copy.deepcopy(RECORD)
    for run in record["runs"]:
        run["curve"] = run["curve"][:2]
    assert CurveView().plots(mini, record) == {} and "curves.png" not in recipe_page(mini, record)


def test_panels_of_their_own_have_a_legend_each_and_lines_that_differ_in_it(tmp_path, monkeypatch):
    legends = []
    real = series.Axes.legend
    monkeypatch.setattr(series.Axes, "legend", lambda *args, **kwargs: legends.append(real(*args, **kwargs)))
    line = series.Series([(128.0, 170.0, 1.0), (256.0, 160.0, 1.0)])
    panels = {"books": {"RoPE": line, "log n": line}, "code": {"MapWM": line, "rank 1": line}}
    series.draw_series(panels, tmp_path / "a.png", series.Frame("tokens", "perplexity", legends=True))
    assert [[text.get_text() for text in legend.get_texts()] for legend in legends] == [
        list(p) for p in panels.values()
    ]
    for legend in legends:
        assert len({handle.get_color() for handle in legend.get_lines()}) == 2


def test_twelve_lines_of_one_panel_differ():
    names = [f"row {n}" for n in range(12)]
    looks = {(line_of(n, names)["color"], str(line_of(n, names)["linestyle"])) for n in names}
    assert len(looks) == 12 and len(COLOURS) == 6
    assert len({(line_of(n, names)["color"], marker_of(n, names)) for n in names}) == 12


def test_the_legend_of_curves_has_every_seed_though_the_first_panel_has_one(tmp_path, monkeypatch):
    legends = []
    real = Figure.legend
    monkeypatch.setattr(Figure, "legend", lambda *args, **kwargs: legends.append(real(*args, **kwargs)))
    curve = [(1000, 0.1), (2000, 0.5)]
    draw_curves({"RoPE": {0: curve}, "MapWM": {0: curve, 1: curve, 2: curve}}, tmp_path / "x.png", 0.99, "accuracy")
    assert [text.get_text() for text in legends[0].get_texts()] == ["seed 0", "seed 1", "seed 2"]


@pytest.mark.parametrize(("last", "scale"), [(180.0, "linear"), (2000.0, "log")])
def test_perplexities_that_are_far_apart_have_a_log_scale(tmp_path, monkeypatch, last, scale):
    seen = []
    monkeypatch.setattr(series.Axes, "set_title", lambda axes, title: seen.append(axes.get_yscale()))
    lines = {
        "RoPE": series.Series([(128.0, 170.0, 1.0), (256.0, 160.0, 1.0)]),
        "NoPE": series.Series([(256.0, last, 0.0)]),
    }
    series.draw_series({"books": lines}, tmp_path / "a.png", series.Frame("tokens", "perplexity", log_y=True))
    assert seen == [scale]


def test_lines_without_a_point_are_drawn_as_an_empty_panel(tmp_path):
    series.draw_series({"books": {"RoPE": series.Series()}}, tmp_path / "a.png", series.Frame("n", "share", share=True))
    assert (tmp_path / "a.png").stat().st_size > 1000
