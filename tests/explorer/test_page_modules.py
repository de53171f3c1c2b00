"""The rules that the page knows are those of the tasks: its modules are run by node and compared with Python."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import mapformers as mf
from mapformers.errors import UserError
from mapformers.explorer import bundle
from mapformers.explorer.server import page_files
from mapformers.explorer.worlds import describe, draw_world, is_certain, own_graph, visible
from mapformers.seeding import generator
from mapformers.tasks.dyck import continuation_f1
from mapformers.tasks.walls import _space
from untrained import SMALL

PAGE = Path(bundle.__file__).parent / "page"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def in_node(imports: str, body: str, given: Any) -> Any:
    """What a function body returns that gets ``given``, with names imported from modules of the page."""
    names = re.findall(r"(\w+) from (\w+)", imports)
    lines = [f'import {{ {name} }} from "{(PAGE / module).as_uri()}.js";' for name, module in names]
    code = "\n".join([*lines, 'import fs from "node:fs";', 'const given = JSON.parse(fs.readFileSync(0, "utf8"));',
                      f"console.log(JSON.stringify((() => {{ {body} }})()));"])  # fmt: skip
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
@pytest.mark.parametrize("edges", ["walls", "torus"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_grid_of_the_page_is_the_grid_of_the_task(dims, edges):
    task = mf.build_task("navigation", dims=dims, grid=4, steps=40, edges=edges)
    batch = task.sample("iid", 8, generator(3, "page"))
    sequences = [[*row, last] for row, last in zip(batch.tokens.tolist(), batch.targets[:, -1].tolist())]
    starts = (batch.info["positions"][:, 0] - batch.info["displacement"][:, 0]).tolist()
    worlds = [
        {**describe(task)["settings"], "start": [value % 4 for value in start], "contents": [0] * 4**dims}
        for start in starts
    ]
    walked = in_node(
        "GridWorld from grid_world, Walk from walk",
        """return given.worlds.map((raw, i) => {
          const walk = new Walk(new GridWorld(raw)); const told = [];
          given.actions[i].forEach((action) => {
            const possible = walk.possible(); walk.go(action);
            told.push({possible, place: walk.place, first: walk.steps[walk.steps.length - 1].first});
          });
          return told; });""",
        {"worlds": worlds, "actions": [sequence[0::2] for sequence in sequences]},
    )
    for row, told in enumerate(walked):
        assert [step["place"] for step in told] == batch.info["positions"][row].tolist()
        assert [step["first"] for step in told] == batch.info["first_visit"][row].tolist()
        before = torch.tensor([worlds[row]["start"], *batch.info["positions"][row].tolist()[:-1]])
        space = torch.from_numpy(_space(before.numpy(), 4).T)
        for step, ahead in zip(told, space):
            all_ways = list(range(2 * dims))
            assert step["possible"] == (all_ways if edges == "torus" else [way for way in all_ways if ahead[way] > 0])


@needs_node
def test_a_world_of_the_server_is_read_cell_by_cell_as_it_was_drawn():
    task = mf.build_task("navigation", grid=5)
    world = draw_world(task, "iid", 7)
    assert world == draw_world(task, "iid", 7) != draw_world(task, "iid", 8)
    cells = [[x, y] for x in range(5) for y in range(5)]
    found = in_node(
        "GridWorld from grid_world",
        "const world = new GridWorld(given.world); return given.cells.map((cell) => world.content(cell));",
        {"world": world, "cells": cells},
    )
    numbers = task._cells(torch.tensor([cells]), 5)[0]
    assert found == [world["contents"][number] for number in numbers]


@needs_node
def test_worlds_and_walks_of_the_page_have_the_distribution_of_the_task():
    task = mf.build_task("navigation", grid=16)
    settings = describe(task)["settings"]
    found = in_node(
        "drawGrid from grid_world, randomStream from random",
        """const counts = new Array(21).fill(0), turns = [0, 0]; const random = randomStream(5);
        for (let seed = 0; seed < 40; seed++) {
          const world = drawGrid(given, 4, seed); world.contents.forEach((token) => counts[token]++);
          const actions = world.wander(world.start, 400, random);
          actions.forEach((action, i) => { if (i) turns[action === actions[i - 1] ? 0 : 1]++; });
        }
        return {counts, same: turns[0] / (turns[0] + turns[1])};""",
        settings,
    )
    total = sum(found["counts"])
    assert found["counts"][:4] == [0] * 4 and abs(found["counts"][4] / total - 0.5) < 0.02
    assert all(abs(count / total - 0.5 / 16) < 0.006 for count in found["counts"][5:])
    actions = task.sample("iid", 200, generator(0, "page")).tokens[:, 0::2]
    assert abs(found["same"] - float((actions[:, 1:] == actions[:, :-1]).float().mean())) < 0.02


@needs_node
def test_what_is_found_comes_from_a_number_as_in_the_task():
    from mapformers.tasks.walk import contents

    draws = torch.rand(500, dtype=torch.float64)
    found = in_node(
        "drawContent from grid_world",
        "return given.map((draw) => drawContent(draw, {p_empty: 0.3, n_objects: 7}, 4));",
        draws.tolist(),
    )
    assert found == contents(draws, 0.3, 4, 7).tolist()


@needs_node
@pytest.mark.parametrize("types", [1, 2, 3])
def test_the_brackets_of_the_page_follow_the_task(types):
    task = mf.build_task("dyck", types=types)
    batch = task.sample("ood-deep", 4, generator(1, "page"))
    chances = torch.rand(4, batch.tokens.shape[1], 2 * types, dtype=torch.float64).mul(4).softmax(-1)
    found = in_node(
        "validNext from brackets, depths from brackets, openBrackets from brackets, continuationF1 from brackets",
        """return given.tokens.map((row, r) => row.map((_, i) => { const past = row.slice(0, i + 1);
          const valid = validNext(past, given.types); const open = openBrackets(past, given.types);
          return {valid, depth: depths(past, given.types)[i], stack: open.map((at) => past[at]),
            f1: continuationF1(given.chances[r][i], valid)}; }));""",
        {"tokens": batch.tokens.tolist(), "types": types, "chances": chances.tolist()},
    )
    f1 = continuation_f1(chances.log(), batch.info["valid"])[2]
    for row, told in enumerate(found):
        assert [step["valid"] for step in told] == batch.info["valid"][row].tolist()
        assert [step["depth"] for step in told] == batch.info["depth"][row].tolist()
        stacks = [[kind for kind in stack if kind >= 0] for stack in batch.info["stack"][row].tolist()]
        assert [step["stack"] for step in told] == stacks
        assert torch.allclose(torch.tensor([step["f1"] for step in told], dtype=torch.float64), f1[row])


@needs_node
def test_the_rule_players_of_the_page_answer_as_those_of_python():
    task = mf.build_task("navigation", grid=5, steps=60)
    world, about = draw_world(task, "iid", 2), describe(task)
    told = in_node(
        "GridWorld from grid_world, Walk from walk, rulesOf from players, "
        "scoredSteps from players, randomStream from random",
        """const world = new GridWorld(given.world); const walk = new Walk(world);
        world.wander(world.start, 60, randomStream(1)).forEach((action) => walk.go(action)); walk.reveal();
        const rules = rulesOf(walk, given.task);
        return {tokens: walk.tokens(), scored: scoredSteps(walk, given.task),
          answers: rules.map((rule) => walk.steps.map((_, step) => rule.answer(step)))};""",
        {"world": world, "task": about},
    )
    tokens = torch.tensor([told["tokens"]])
    for name, answers in zip(("perfect", "best-lag"), told["answers"]):
        asked = mf.players.build(name, task)(tokens[:, :-1])[0, 0::2].argmax(-1).tolist()
        assert [asked[step] for step in told["scored"]] == [answers[step] for step in told["scored"]], name
    assert len(told["scored"]) > 10


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_task_is_described_and_has_worlds(name):
    task = mf.build_task(name, **SMALL[name])
    about = describe(task)
    assert about["kind"] != "tokens" and json.loads(json.dumps(about, allow_nan=False)) == about
    world = draw_world(task, "iid", 1)
    assert json.loads(json.dumps(world, allow_nan=False)) != {} and world == draw_world(task, "iid", 1)


def test_a_token_of_blanks_can_be_seen():
    assert [visible(name) for name in (" ", "\n", " the", "a b", "·")] == ["␣", "⏎", "␣the", "a b", "·"]


def test_a_family_can_be_walked_and_the_logician_is_sure_of_a_way_back():
    task = mf.build_task("family-tree")
    world = draw_world(task, "iid", 3)
    person = next(p for p, of in enumerate(world["relatives"]) if of[2] >= 0)
    spouse = world["relatives"][person][2]
    walk = (2, world["contents"][spouse], 2, world["contents"][person], 2)  # to the spouse and back, and again
    assert is_certain(task, walk) == {"answer": world["contents"][spouse], "certain": True}
    assert is_certain(task, walk[:1])["certain"] is False


GRAPH = {"name": "ring", "nodes": ["a", "b"], "actions": ["north", "south"],
         "edges": [["a", "north", "b"], ["b", "south", "a"]], "start": "b"}  # fmt: skip


@needs_node
def test_a_graph_of_ones_own_is_the_same_world_with_and_without_python():
    task = mf.build_task("graph", world=json.dumps(GRAPH))
    text = json.dumps({**GRAPH, "observations": {"a": "B"}})
    here = own_graph(task, text, 0)
    there = in_node(
        "graphFrom from own_graph", "return graphFrom(given.text, given.task);", {"text": text, "task": describe(task)}
    )
    assert here["start"] == there["start"] == 1 and here["nodes"] == there["nodes"]
    assert [{str(k): v for k, v in ways.items()} for ways in here["exits"]] == there["exits"]
    assert task.token_names[here["contents"][0]] == task.token_names[there["contents"][0]] == "B"
    with pytest.raises(UserError, match="does not know the action 'up'"):
        own_graph(
            task, json.dumps({**GRAPH, "actions": ["up", "south"], "edges": [["a", "up", "b"], ["b", "south", "a"]]}), 0
        )
    with pytest.raises(UserError, match="Only a model that was trained on the task `graph`"):
        own_graph(mf.build_task("dyck"), text, 0)


def test_no_module_of_the_page_makes_markup_of_text_or_loads_from_elsewhere():
    for name, content in page_files().items():
        text = content.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


@needs_node
def test_the_linear_map_of_the_page_is_the_least_squares_one():
    moves, wanted = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    found = in_node(
        "fitLinear from linear",
        "return fitLinear(given.moves, given.wanted);",
        {"moves": moves.tolist(), "wanted": wanted.tolist()},
    )
    assert torch.allclose(
        torch.tensor(found, dtype=torch.float64).T, torch.linalg.lstsq(moves, wanted).solution, atol=1e-6
    )
