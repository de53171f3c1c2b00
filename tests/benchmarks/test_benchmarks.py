"""Benchmarks measure what they say: turns are taken, peaks are peaks, blocked attention stays small."""

import dataclasses
import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mapformers.benchmarks import learning, measure, memory, peers, report, throughput
from mapformers.cli.main import main
from mapformers.modules.layer import LAYERS
from mapformers.runs.provenance import freshness

BATCH, LENGTH = 4, 2048
LONG = throughput.Size("long", 1, 16, 1, BATCH, LENGTH)
ONE_MATRIX = BATCH * LENGTH * LENGTH * 4 / measure.MIB


def test_functions_take_turns_after_one_round_of_warming_up():
    calls: list[str] = []
    seconds = measure.interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, repeats=2)
    assert calls == list("abc" * 3)
    assert list(seconds) == list("abc") and all(len(rounds) == 2 for rounds in seconds.values())
    assert all(0 <= took < 1 for rounds in seconds.values() for took in rounds)


def test_a_ratio_of_speeds_is_taken_within_rounds():
    """Round by round 2, 4 and 1.5 times as fast; the median times, 2 and 6, would say 3."""
    assert measure.speed_ratio([1.0, 2.0, 4.0], [2.0, 8.0, 6.0]) == 2.0


def hold(mebibytes: int):
    """A step that needs so much memory for a moment."""
    return lambda: torch.ones(mebibytes * measure.MIB // 4).sum().item()


def test_peak_memory_is_what_a_step_held_for_a_moment():
    assert measure.peak_memory(hold, 100) == pytest.approx(100, abs=25)
    assert measure.peak_memory(hold, 400) == pytest.approx(400, abs=25)


def test_mapem_never_holds_a_matrix_of_logits_for_the_whole_batch():
    """Written out, the product of attentions keeps several; so does nothing else in the layer."""
    rope, mapem = (measure.peak_memory(throughput.training_step, row, LONG) for row in ("rope", "mapem"))
    assert mapem - rope < ONE_MATRIX / 2


def test_every_mixer_is_timed_and_has_a_place_in_the_table():
    assert {name for name, _ in throughput.rows().values()} == set(LAYERS)
    every = dataclasses.replace(throughput.SIZES["smoke"], rows=())
    timings = throughput.throughput(every, repeats=1, memory=False)
    assert [t.ratio_to_rope for t in timings if t.row == "rope"] == [1.0]
    assert {t.row for t in timings} >= {"rope", "mapwm", "mapem", "mapem attend=s", "Llama"}
    for t in timings:
        assert t.tokens_per_second * t.seconds == pytest.approx(4 * 32)


def test_the_peer_has_as_many_parameters_within_five_percent():
    pytest.importorskip("transformers")
    size = throughput.SIZES["navigation"]
    ours, theirs = (
        sum(p.numel() for p in model.parameters()) for model in (throughput.own_model("rope", size), peers.llama(size))
    )
    assert theirs == pytest.approx(ours, rel=0.05)


def test_work_counts_products_as_pytorch_does():
    """PyTorch's counter knows the products with weights, not those inside fused attention."""
    size = throughput.SIZES["smoke"]
    model = throughput.own_model("rope", size)
    tokens = torch.randint(0, size.vocab_size, (size.batch_size, size.length))
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    attention = 6 * size.length * size.d_model * tokens.numel()
    assert counter.get_total_flops() == pytest.approx(throughput.work(model, size) - attention, rel=0.02)


def test_when_a_run_first_reached_the_goal():
    lines = [{"step": n, "accuracy": a, "seconds": 2.0 * n} for n, a in ((10, 0.5), (20, 0.99), (30, 0.4))]
    reached = learning.first_reached(3, lines, "accuracy", 0.99, batch_size=32)
    assert (reached.seed, reached.sequences, reached.seconds, reached.best) == (3, 640, 40.0, 0.99)
    assert learning.first_reached(3, lines, "accuracy", 0.995, 32).sequences is None


def test_a_run_that_never_gets_there_counts_as_the_slowest():
    assert learning.median_or_none([1.0, None, 2.0]) == 2.0
    assert learning.median_or_none([1.0, None, None]) is None


@pytest.fixture(scope="module")
def one_process():
    """`peak_memory` in one process for all: what it still holds is missing from its next figure, which nobody reads."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda build, *args: max(1.0, pool.submit(measure._peak, 1, build, args, {}).result())


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        ("throughput --sizes smoke --repeats 1", ("ratio to rope", "mapwm")),
        ("lengths --scale smoke", ("ratio at 256", "MiB at 256", "mapem", "mambapy")),
        ("memory --scale smoke", ("growth", "mapem")),
        ("tasks --scale smoke", ("sampled tokens/s", "navigation")),
        ("generation --scale smoke", ("ratio to Llama", "its generate", "mapwm-nc", "tokens/s")),
        ("learning --scale smoke --seeds 1", ("sequences", "median", "never")),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_the_command_prints_a_table_and_keeps_the_figures(
    command, headings, one_process, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(memory, "ROWS", ("rope", "mapem"))
    monkeypatch.setattr(memory, "LARGE_ROWS", ("mapem-nc",))
    monkeypatch.setattr(memory, "peak_memory", one_process)
    monkeypatch.setattr(throughput, "peak_memory", lambda *args: 1.0)  # a process each; shown above
    assert main(["bench", *command.split(), "--write", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(heading in printed for heading in headings)
    name = command.split()[0]
    record = json.loads((tmp_path / f"bench-{name}.json").read_text())
    assert record["benchmark"] == name and record["versions"]["torch"]
    assert freshness(record) == "current" and "--write" not in record["command"]
    for table in [*report.REPORTS[name].tables(record), report.REPORTS[name].short(record)]:
        lines = table.render("markdown").splitlines()
        assert lines[0].count("|") == lines[-1].count("|") == len(table.headings) + 1
        assert table.title in report.benchmark_page(name, record) + report.benchmark_section(name, record)


def test_the_matmul_peak_is_that_of_the_fastest_product(monkeypatch):
    clock = iter([0.0, 4.0, 10.0, 10.5, 20.0, 23.0])
    with monkeypatch.context() as patch:
        patch.setattr(measure, "time", SimpleNamespace(perf_counter=clock.__next__))
        assert measure.matmul_peak(repeats=3, size=64) == 2 * 64**3 / 0.5
    assert next(clock, None) is None
    assert 1e8 < measure.matmul_peak(repeats=2, size=256) < 1e16 and math.isfinite(measure.matmul_peak(1, 64))


def test_the_language_size_is_the_paper_preset():
    small = dataclasses.replace(throughput.SIZES["language"], n_layers=1, d_model=48, n_heads=2, vocab_size=11)
    mapwm, rope = (throughput.own_model(row, small).config for row in ("mapwm", "rope"))
    options = mapwm.layers[0].options
    assert (options.rank, options.init, options.base, mapwm.tie_head, rope.tie_head) == (
        4,
        "ordinary",
        1024,
        True,
        True,
    )
    assert rope.layers[0].options.init == "ordinary" and "preset paper" in small.title
