"""A folder whose run has come to nothing is free; any other is kept, unless the user asks for it to be overwritten."""

import json

import pytest

import mapformers as mf
from mapformers.cli.main import main
from runs import TINY, assert_same_run, command, copy, newest, quiet, run

FAILING = {"lr": 1e30}
SETTINGS = {name: value for name, value in TINY.items() if name not in ("task", "model")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def failed(tmp_path, capsys):
    """The folder of a run that failed at its first steps, before any checkpoint."""
    folder = tmp_path / "run"
    assert main(command(out=folder, **FAILING)) == 2
    assert "lower --lr" in capsys.readouterr().err
    assert (folder / "config.json").exists() and not list(folder.glob("checkpoints/step-*"))
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("settings", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_the_corrected_command_starts_a_failed_run_again(whole, failed, settings):
    assert_same_run(run(failed, **settings), whole)


def test_a_failed_run_goes_on_from_its_start_where_only_its_folder_is_named(whole, failed):
    config = failed / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **json.loads((whole / "config.json").read_text())}))
    assert main(["train", "--resume", "--out", str(failed)]) == 0
    assert_same_run(failed, whole)


def leftover(folder):
    """What a process leaves that is killed before config.json is whole."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "config.json.part").write_text('{"ta')


@pytest.mark.parametrize("prepare", [lambda folder: None, lambda folder: folder.mkdir(), leftover])
@pytest.mark.parametrize("settings", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_requeued_command_may_always_ask_to_resume(whole, tmp_path, prepare, settings):
    prepare(tmp_path / "run")
    assert_same_run(run(tmp_path / "run", **settings), whole)
    assert not (tmp_path / "run/config.json.part").exists()


def test_overwriting_removes_the_files_of_the_run_and_no_others(whole, tmp_path):
    folder = copy(run(tmp_path / "other", seed=1, sequences=80), tmp_path / "run")
    for name in ("measures.json", "cell.json", "notes.txt", "checkpoints/mine.txt"):
        (folder / name).write_text("{}")
    (folder / "checkpoints/damaged-step-00000007").mkdir()
    run(folder, overwrite=True)
    assert_same_run(folder, whole)
    assert set(files(folder)) == {*files(whole), "notes.txt", "checkpoints/mine.txt"}


@pytest.mark.parametrize("settings", [{}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize(
    "names",
    [
        ("config.json",),
        ("metrics.jsonl",),
        ("result.json",),
        ("checkpoints/step-00000001",),
        ("tokenizer.json",),
        ("text.json",),
        ("manifest.json", "train-00000.bin"),
    ],
)
def test_what_is_no_run_of_ours_is_never_overwritten(tmp_path, capsys, names, settings):
    folder = tmp_path / "theirs"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"hidden_size": 768}')
    before = files(folder)
    assert main(command(out=folder, **settings)) == 2
    assert "theirs holds files of something else than a whole run; choose another --out.\n" in capsys.readouterr().err
    assert files(folder) == before


def test_python_means_the_same(whole, tmp_path):
    def train(**given):
        return mf.train("navigation", "mapwm", out=tmp_path / "run", console=quiet(), **{**SETTINGS, **given})

    with pytest.raises(mf.UserError, match="lower --lr"):
        train(**FAILING)
    train(resume=True)
    assert_same_run(tmp_path / "run", whole)
    with pytest.raises(mf.UserError, match="already holds a run; continue it with --resume, start it anew with --over"):
        train()
    with pytest.raises(mf.UserError, match="was started with other settings"):
        train(resume=True, lr=0.5)
    with pytest.raises(mf.UserError, match="not both"):
        train(resume=True, overwrite=True)
    with pytest.raises(mf.UserError, match="out must name a folder"):
        mf.train("navigation", "mapwm", out="")
    assert train(resume=True).result["splits"] == train(overwrite=True).result["splits"]


@pytest.mark.parametrize("missing", [None, "a split", "the file", "its end"])
def test_a_finished_run_keeps_its_result_unless_figures_are_missing(whole, tmp_path, monkeypatch, missing):
    """The command in it is the one that trained the run."""
    folder = copy(whole, tmp_path / "run")
    file = folder / "result.json"
    told = {**json.loads(file.read_text()), "command": "mapformers train --as-it-was"}
    if missing == "a split":
        del told["splits"]["ood-dense"]
    file.write_text(json.dumps(told)[: 100 if missing == "its end" else None])
    if missing == "the file":
        file.unlink()
    before = files(folder)
    monkeypatch.setattr("sys.argv", ["mapformers", "train", "--resume"])
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    assert_same_run(folder, whole)
    if missing is None:
        assert files(folder) == before
    else:
        assert json.loads(file.read_text())["command"] == "mapformers train --resume"


def test_a_run_that_had_to_be_trained_on_gets_a_new_result(whole, tmp_path):
    folder = copy(whole, tmp_path / "run")
    for file in newest(folder).iterdir():
        file.unlink()
    newest(folder).rmdir()
    (folder / "result.json").write_text(json.dumps({**json.loads((folder / "result.json").read_text()), "seed": 7}))
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    assert_same_run(folder, whole)
    assert json.loads((folder / "result.json").read_text())["seed"] == 0
