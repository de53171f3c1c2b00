"""`mapformers eval` prints what players score beside what a model does."""

import shlex

from mapformers.cli.main import main


def test_eval_prints_the_players_of_the_task(capsys, tmp_path):
    small = "--scale smoke --sequences 16 --batch-size 8 --final-sequences 2 --d-model 16 --steps 4"
    assert main(shlex.split(f"train --task family-tree --model nope {small} --out {tmp_path / 'run'}")) == 0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "run"), "--splits", "iid", "--n-sequences", "8"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("nope on family-tree") < printed.index("player: logician")
    assert printed.count("iid") == 2 and "ood" not in printed
