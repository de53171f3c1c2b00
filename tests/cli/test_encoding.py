"""A machine that knows ASCII alone trains in the kitchen too: every file is UTF-8, whatever the locale says."""

import json
import os
import subprocess
import sys

import mapformers as mf

WORLD = {
    "name": "Wohnung",
    "nodes": ["Küche", "Flur"],
    "actions": ["raus", "rein"],
    "edges": [["Küche", "raus", "Flur"], ["Flur", "rein", "Küche"]],
    "observations": {"Küche": "Töpfe"},
}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMALL = (
    "--steps 8 --d-model 16 --sequences 24 --batch-size 4 --eval-sequences 4 --final-sequences 4 --checkpoint-every 2"
)
TWICE = """
import sys
from mapformers.cli.main import main
sys.argv[0] = "mapformers"
line = ["train", "--task", "graph", "--model", "mapwm", "--scale", "smoke", "--world", sys.argv[1], *sys.argv[3:]]
assert main([*line, "--out", sys.argv[2]]) == 0
assert main(["train", "--resume", "--overwrite", "--out", sys.argv[2]]) == 2
import pathlib
(pathlib.Path(sys.argv[2]) / "result.json").unlink()
assert main([*line, "--resume", "--out", sys.argv[2]]) == 0
assert main(["eval", sys.argv[2], "--splits", "iid", "--n-sequences", "4"]) == 0
assert main(["show", "graph", "--world", sys.argv[1]]) == 0
"""


def test_a_world_with_umlauts_under_a_locale_without_them(tmp_path):
    world, folder = tmp_path / "küche.json", tmp_path / "Läufe"
    world.write_text(json.dumps(WORLD, ensure_ascii=False), encoding="utf-8")
    words = [sys.executable, "-c", TWICE, os.fsencode(world), os.fsencode(folder), *SMALL.split()]
    done = subprocess.run(words, env={**os.environ, **ASCII}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    run = mf.load(folder)
    assert run.task.settings.world.count("Küche") == 5 and "Töpfe" in run.task.token_names
    assert "küche.json" in run.result["command"]
