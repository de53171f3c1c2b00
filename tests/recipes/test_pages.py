"""Pages: what was measured, over which seeds, beside the paper's, and where it comes from."""

import json

import pytest
from making import RECORD, a_record

import mapformers as mf
from mapformers.cli.report import documents, results_page, write_documents
from mapformers.recipes import RECIPES, TableView
from mapformers.recipes.pages import coverage, finding, recipe_page, recipe_section
from mapformers.recipes.record import summaries
from mapformers.recipes.views.table import cell
from mapformers.reports.marks import footnotes, marked
from mapformers.reports.page import WRITTEN_BY, replace_block
from mapformers.runs.provenance import sources_hash


def test_figures_over_seeds(mini):
    found = summaries(mini, RECORD)
    assert (found["MapWM", "1D", "iid"].mean, found["MapWM", "1D", "iid"].n) == (0.625, 2)
    assert found["MapWM", "1D", "iid"].std == pytest.approx(0.125 * 2**0.5)


def test_a_cell_has_ours_its_spread_and_the_papers(mini):
    found = summaries(mini, RECORD)
    cells = [
        cell(found, mini, row, "1D", split)
        for row, split in (("MapWM", "iid"), ("MapWM", "ood-dense"), ("RoPE (tiny)", "iid"), ("other", "iid"))
    ]
    assert cells == ["0.625 ± 0.177 (0.75)", "0.250 ± 0.000", "0.125", "–"]


def test_a_run_that_diverged_has_no_figure(mini):
    record = a_record(("MapWM", 0, 0.5, 0.25), ("MapWM", 1, 0.75, 0.25))
    record["runs"][1]["splits"]["iid"]["accuracy"]["value"] = None
    assert cell(summaries(mini, record), mini, "MapWM", "1D", "iid") == "–"
    assert "| MapWM ° | 2 | – | 0.250 ± 0.000 |" in recipe_page(mini, record)


def test_markdown_in_the_order_of_the_recipe(mini):
    record = {**RECORD, "players": {"1D": {"perfect": {"iid": 1.0, "ood-dense": None}}}}
    assert TableView().table(mini, record, "1D", marks=False).render("markdown").splitlines() == [
        "| 1D | seeds | IID | Dense |",
        "|---|--:|--:|--:|",
        "| RoPE (tiny) | 1 | 0.125 | 0.062 |",
        "| MapWM | 2 | 0.625 ± 0.177 (0.75) | 0.250 ± 0.000 |",
        "| *player: perfect* | | 1.000 | – |",
    ]


def test_marks_say_whether_sources_changed_or_were_never_recorded():
    assert marked("MapWM", ["current", "current"]) == "MapWM"
    assert marked("MapWM", ["current", "changed"]) == "MapWM †"
    assert marked("MapWM", ["unrecorded", "changed"]) == "MapWM †°"
    assert footnotes(["a", "b"]) == []
    assert [note[0] for note in footnotes(["a †", "b °"])] == [note[0] for note in footnotes(["a †°"])] == ["†", "°"]


def test_a_table_marks_a_row_of_which_any_run_has_other_sources(mini):
    record = a_record(("MapWM", 0, 0.5, 0.25), ("MapWM", 1, 0.75, 0.25))
    configs = [mini.cell("MapWM", "1D", seed).config("cpu") for seed in (0, 1)]
    for run, config, sources in zip(record["runs"], configs, (sources_hash(configs[0]), "0123456789abcdef")):
        run |= {"config": config.to_dict(), "sources": sources}
    table = TableView().table(mini, record, "1D")
    assert [row[0] for row in table.rows] == ["MapWM †"] and "have changed since" in table.notes[-1]
    record["runs"].pop()
    assert [note[0] for note in TableView().table(mini, record, "1D").notes] == ["↓"]


@pytest.mark.parametrize(
    ("changed", "label"),
    [
        ({}, "MapWM"),
        ({"train": {"batch_size": 8}}, "MapWM §"),
        ({"model": {"d_model": 32}}, "MapWM §"),
        ({"unknown": {}}, "MapWM †"),  # what cannot be read is not said to differ
    ],
)
def test_a_row_that_was_run_with_other_settings_than_the_recipe_has_is_marked(mini, changed, label):
    record, plain = a_record(("MapWM", 0, 0.5, 0.25)), mini.cell("MapWM", "1D").config("cpu").to_dict()
    plain |= {part: {**plain.get(part, {}), **settings} for part, settings in changed.items()}
    record["runs"][0] |= {"config": plain, "sources": "0" * 16 if "unknown" in plain else sources_hash(plain)}
    table = TableView().table(mini, record, "1D")
    assert table.rows[0][0] == label
    assert any(note.startswith("§ run with other settings") for note in table.notes) is ("§" in label)


def test_rows_are_counted_and_the_finding_has_the_measured_figures(mini):
    assert coverage(mini, RECORD) == "2 of 2 rows are here."
    assert finding(mini, RECORD) == "MapWM recalls 0.625 ± 0.177, RoPE 0.125."
    part = a_record(("MapWM", 0, 0.5, 0.25))
    assert coverage(mini, part) == "1 of 2 rows is here; not run: RoPE (tiny)."
    assert finding(mini, part) == ""  # one of its figures was not measured


def test_the_page_of_all_results_has_one_table_and_one_sentence_for_each(mini):
    page = results_page({"mini": RECORD}, {})
    assert page.count("| MapWM ° | 2 | 0.625 ± 0.177 (0.75) ↓ | 0.250 ± 0.000 |") == 1
    assert "2 of 2 rows are here. MapWM recalls" in page and "(results/mini.md)" in page
    assert "0.7500" not in page  # seeds are on its own page
    assert "## table2" not in page  # it has no results here
    assert "Not run yet: " in page and "table2" in page.split("Not run yet: ")[1]


def test_the_page_of_all_results_has_the_papers_order_and_one_line_for_what_only_chooses(mini):
    empty = a_record()
    page = results_page(dict.fromkeys(("rates-ssm", "ssm", "mini", "table2", "table1"), empty), {})
    headings = [line.removeprefix("## ").split(":")[0] for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["table1", "table2", "ssm", "mini", "To choose settings"]
    assert "- **rates-ssm**: each row of `ssm`" in page and "(results/rates-ssm.md)" in page
    assert "0 of 30 rows are here. [Seeds" in page


def test_the_page_of_a_recipe_has_every_seed_and_where_it_comes_from(mini):
    page = recipe_page(mini, RECORD)
    assert "| MapWM ° | 1D | 1 | 0.7500 | 0.2500 | 0.7500 | – | 1.0 |" in page
    assert "A run takes 1.0 core-minutes on average (1.0 to 1.0); all 3 took 0.1 core-hours." in page
    assert "`mapformers reproduce mini`" in page and "torch 2" in page and "Commit: not recorded" in page
    assert "| MapWM | 1D | 16 | 4 | 0.003 | 1,000 | 1 | d\\_model 16, rank – |" in page
    assert recipe_section(mini, RECORD).count("\n|") == 4


def test_several_worlds_share_one_table_on_the_page_of_all_results():
    record = json.loads(json.dumps(RECORD).replace('"row": "MapWM"', '"row": "MapWM-r2"'))
    record["runs"] = [{**run, "world": world} for run in record["runs"][:2] for world in ("1D", "2D")]
    section = recipe_section(RECIPES["table2"], record)
    assert section.count("|---") == 1 and "| MapWM-r2 ° | 2D | 2 |" in section
    record["runs"].pop(1)
    record["runs"].pop(2)  # both of 2D
    section = recipe_section(RECIPES["table2"], record)
    assert "1 of 14 rows is here; not run: MapEM-o; RoPE (1L);" in section and "MapWM-r2 (2D)." in section


def demo_checkout(root):
    run = {"row": "MapWM-r2", "world": "2D", "seed": 0, "command": "mapformers demo", "versions": {}, "hardware": {}}
    splits = {split: {"accuracy": {"value": 0.5, "count": 2}} for split in RECIPES["table2"].splits}
    for folder in ("results", "docs/results"):
        (root / folder).mkdir(parents=True)
    (root / "results/demo.json").write_text(json.dumps({"scale": "cpu", "runs": [{**run, "splits": splits}]}))
    (root / "README.md").write_text("before\n<!-- demo:begin -->\nold\n<!-- demo:end -->\nafter\n")


def test_documents_are_refreshed_only_where_they_changed(tmp_path):
    demo_checkout(tmp_path)
    readme, old = tmp_path / "README.md", tmp_path / "docs/results/gone.md"
    old.write_text(f"{WRITTEN_BY} Of a recipe that is no more.")
    own = tmp_path / "docs/results/notes.md"
    own.write_text("Of a person.")
    pages = {tmp_path / "docs/results.md", tmp_path / "docs/results/demo.md"}
    assert set(write_documents(tmp_path)) == {readme, old, *pages} and not old.exists() and own.exists()
    text = readme.read_text()
    assert text.startswith("before\n<!-- demo:begin -->\n| 2D |") and text.endswith("<!-- demo:end -->\nafter\n")
    assert "old" not in text and "| MapWM-r2 | 1 | 0.500 (1.00)" in text
    assert write_documents(tmp_path) == []


def test_a_recipe_with_results_has_a_page_and_its_figures(mini, tmp_path):
    demo_checkout(tmp_path)
    (tmp_path / "results/mini.json").write_text(json.dumps(RECORD))
    assert tmp_path / "docs/results/mini.md" in documents(tmp_path)
    assert tmp_path / "docs/results/mini.md" in write_documents(tmp_path)


def test_a_document_without_the_block_is_refused():
    with pytest.raises(mf.UserError, match="has no block 'demo'"):
        replace_block("nothing here", "demo", "table")
