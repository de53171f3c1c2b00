"""The paper's table of speed is a view of what `mapformers bench throughput` measured."""

import json

import pytest

from mapformers.benchmarks.report import REPORTS
from mapformers.benchmarks.speed import ROWS, SIZE, speed_tables
from mapformers.benchmarks.throughput import SIZES
from mapformers.cli.main import main


def a_record(**ratios):
    rows = [
        {"row": row, "tokens_per_second": 100.0, "ratio_to_rope": ratio, "peak_mib": 2048.0, "seconds": 1.0}
        for row, ratio in ratios.items()
    ]
    sizes = {"speed": {"title": "speed: 12 layers of 768", "rows": rows}} if rows else {}
    return {"benchmark": "throughput", "sizes": sizes, "hardware": {"threads": 2}}


def test_ratios_stand_beside_the_papers():
    [table] = speed_tables(a_record(rope=1.0, mapwm=0.9, mapem=0.65, **{"mapem-nc": 0.4}))
    assert [row[:4] for row in table.rows] == [
        ["RoPE", "1,939", "1.00", "1.00"],
        ["MapWM", "1,869", "0.96", "0.90 ↓"],
        ["MapEM", "1,210", "0.62", "0.65"],
        ["MapEM-NC", "out of memory", "–", "0.40"],
        ["MapWM-NC", "–", "–", "–"],
    ]
    assert table.rows[3][5] == "2,048" and table.notes[-1].startswith("↓ ")


def test_its_rows_are_those_that_are_timed():
    assert {"rope", *SIZES[SIZE].rows} == set(ROWS)


def test_it_says_where_this_size_was_not_measured():
    [table] = speed_tables(a_record())
    assert [row[3] for row in table.rows] == ["–"] * 5
    assert "mapformers bench throughput --write results" in table.notes[1]


def test_report_knows_benchmarks_by_name(tmp_path, capsys):
    assert main(["report", "speed", "--results", str(tmp_path)]) == 2
    assert f"run `mapformers bench throughput --write {tmp_path}` first" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "bench-throughput.json").write_text(json.dumps(a_record(rope=1.0, mapwm=0.9)))
    assert main(["report", "speed", "--results", str(tmp_path), "--format", "csv"]) == 0
    assert 'MapWM,"1,869",0.96,0.90 ↓,100,"2,048"' in capsys.readouterr().out
    assert main(["report", "sped", "--results", str(tmp_path)]) == 2
    assert "no recipe named 'sped'; did you mean 'speed'" in capsys.readouterr().err


@pytest.mark.parametrize("name", REPORTS)
def test_reproduce_says_how_a_benchmark_is_measured(name, capsys):
    assert main(["reproduce", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"run `mapformers bench {REPORTS[name].of or name} --write results`, then `mapformers report {name}`" in said
