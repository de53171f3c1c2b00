"""Whatever is typed wrong gives one sentence on stderr, exit code 2, and leaves the working folder as it was."""

import io
import json
import shlex
import shutil
import sys

import pytest

from helpers import thorough
from mapformers.cli.main import main
from wrong_words import MORE_CASES

TRAIN = "train --task navigation --model mapwm --scale smoke --steps 4 --sequences 32 --final-sequences 4 "
# What a machine says to a programmer, not to a person.
JARGON = (
    "Traceback", "Error parsing", "Error(", "invalid literal", "could not convert", "state_dict", " STR ", " PATH ",
    "(required)", "'None'", "----", "│",
)  # fmt: skip

CASES = [
    # names
    ("trian", "There is no command named 'trian'; did you mean 'train'?"),
    ("navigation", "There is no command named 'navigation'; choose one of: "),
    ("--task navigation", "There is no command named '--task'"),
    (TRAIN + "--model mapmw", "There is no model named 'mapmw'; did you mean 'mapwm'?"),
    (TRAIN + "--model=mapmw", "There is no model named 'mapmw'; did you mean 'mapwm'?"),
    (TRAIN + "--model transformer", "There is no model named 'transformer'; choose one of: "),
    (TRAIN + "--task navigaton", "There is no task named 'navigaton'; did you mean 'navigation'?"),
    (TRAIN + "--task ''", "There is no task named ''; choose one of: "),
    ("show navigaton", "There is no task named 'navigaton'; did you mean 'navigation'?"),
    ("show navigation --split odd-dense", "named 'odd-dense'; did you mean 'ood-dense'?"),
    ("show navigation --dims 3 --split ood-sparse-512", "named 'ood-sparse-512'; did you mean 'ood-sparse'?"),
    ("reproduce tabel2", "There is no recipe named 'tabel2'; did you mean 'table2'?"),
    ("report tabel2", "There is no recipe named 'tabel2'; did you mean 'table2'?"),
    ("reproduce table2 --scale smoke --rows MapWM-r3", "no row of 'table2' named 'MapWM-r3'; did you mean 'MapWM-r2'?"),
    ("list model", "There is no list named 'model'; did you mean 'models'?"),
    ("list mapwm", "There is no list named 'mapwm'; choose one of: models, recipes, tasks."),
    # options that do not exist
    (TRAIN + "--rnak 3", "--rnak, 3; did you mean --rank?"),
    (TRAIN + "--sede 3", "did you mean --seed?"),
    (TRAIN + "--layers 2", "either a model or a list of layers"),
    (TRAIN + "--n-layer 2", "did you mean --n-layers?"),
    (TRAIN + "-lr 3", "Unrecognized options: -lr, 3; see `mapformers train"),
    (
        TRAIN + "--model rope --rank 2",
        "Unrecognized options: --rank, 2; see `mapformers train --task navigation --model rope",
    ),
    (TRAIN + "--model nope --omega-max 1", "Unrecognized options: --omega-max, 1; see `mapformers train"),
    (TRAIN + "--self-key", "did you mean --no-self-key?"),
    (TRAIN + "--no-self-key True", "Unrecognized options: True; see `mapformers train"),
    ("show navigation --rnak 3", "Unrecognized options: --rnak, 3; see `mapformers show --help`."),
    ("eval mine --split iid", "did you mean --splits?"),
    ("demo --sede 1", "did you mean --seed?"),
    ("list --all", "Unrecognized options: --all; see `mapformers list --help`."),
    ("reproduce table2 --sedes 1", "did you mean --seeds?"),
    ("report table2 --wriet", "did you mean --write?"),
    # what is missing
    ("train", "--task is missing"),
    ("train --model mapwm", "--task is missing"),
    ("train --task navigation", "--model is missing"),
    ("train navigation mapwm", "--task is missing"),
    ("train --tsak navigation --model mapwm", "--task is missing; see `mapformers train --help`."),
    ("train --task navigation --modle mapwm", "--model is missing; see `mapformers train --help`."),
    ("train --task --model mapwm", "--task is missing; see `mapformers train --help`."),
    (TRAIN + "--rank", "Missing value for argument '--rank'."),
    (TRAIN + "--out", "Missing value for argument '--out'."),
    ("show", "mapformers show needs a name from `mapformers list tasks`; see"),
    ("show --split iid", "There is no task named 'iid'; choose one of: dyck, "),
    ("eval", "mapformers eval needs the folder that `mapformers train` wrote, or --model"),
    ("reproduce", "mapformers reproduce needs a name from `mapformers list recipes`, or all"),
    # extra words
    (TRAIN + "extra", "Unrecognized options: extra; see `mapformers train"),
    (TRAIN + "--rank 1 2", "Unrecognized options: 2; see `mapformers train"),
    ("show navigation extra", "Unrecognized options: extra; see `mapformers show --help`."),
    ("eval mine extra", "Unrecognized options: extra; see `mapformers eval --help`."),
    ("demo extra", "Unrecognized options: extra; see `mapformers demo --help`."),
    ("list models tasks", "Unrecognized options: tasks; see `mapformers list --help`."),
    ("reproduce table2 extra", "Unrecognized options: extra; see `mapformers reproduce --help`."),
    ("report table2 extra", "Unrecognized options: extra; see `mapformers report --help`."),
    # values of the wrong kind
    (TRAIN + "--rank x", "--rank takes a whole number, not 'x'"),
    (TRAIN + "--rank 2.5", "--rank takes a whole number, not '2.5'"),
    (TRAIN + "--n-layers two", "--n-layers takes a whole number, not 'two'"),
    (TRAIN + "--seed 1.5", "--seed takes a whole number, not '1.5'"),
    (TRAIN + "--sequences 1e3", "--sequences takes a whole number, not '1e3'"),
    (TRAIN + "--dims 2D", "--dims takes a whole number, not '2D'"),
    (TRAIN + "--lr abc", "--lr takes a number, not 'abc'"),
    (TRAIN + "--p-empty 50%", "--p-empty takes a number, not '50%'"),
    ("show navigation --dims x", "--dims takes a whole number, not 'x'"),
    ("show navigation --seed x", "--seed takes a whole number, not 'x'"),
    ("eval mine --n-sequences x", "--n-sequences takes a whole number, not 'x'"),
    ("demo --seed x", "--seed takes a whole number, not 'x'"),
    ("reproduce table2 --seeds x", "--seeds takes a whole number, not 'x'"),
    (TRAIN + "--scale huge", "'smoke', 'cpu', 'paper'"),
    (TRAIN + "--schedule step", "'linear', 'cosine', 'constant'"),
    ("demo --scale paper", "'smoke', 'cpu'"),
    ("reproduce table2 --scale huge", "'smoke', 'cpu', 'paper'"),
    # values out of range: the world
    (TRAIN + "--dims 6", "mapformers: dims must be 1 to 5, not 6"),
    (TRAIN + "--dims 0", "mapformers: dims must be 1 to 5, not 0"),
    (TRAIN + "--grid 1", "mapformers: grid must be at least 2, not 1"),
    (TRAIN + "--grid -8", "mapformers: grid must be at least 2, not -8"),
    (TRAIN + "--steps 0", "mapformers: steps must be at least 1, not 0"),
    (TRAIN + "--p-empty 2", "mapformers: p_empty is a probability between 0 and 1, not 2.0"),
    (TRAIN + "--p-empty nan", "mapformers: p_empty is a probability between 0 and 1, not nan"),
    (TRAIN + "--n-objects 0", "mapformers: n_objects must be at least 1, not 0"),
    (TRAIN + "--max-run 0", "mapformers: max_run must be at least 1, not 0"),
    ("show navigation --dims 9", "mapformers: dims must be 1 to 5, not 9"),
    ("show navigation --grid 1", "mapformers: grid must be at least 2, not 1"),
    ("show navigation --steps 99999999999", "choose shorter sequences or a smaller batch"),
    ("show navigation --n-objects 99999999999", "n_objects must be at most 1000000"),
    # other worlds
    ("show dyck --length 31", "mapformers: length must be even, as every bracket is closed, not 31."),
    ("show dyck --depth 17", "mapformers: A depth of 17 needs a length of at least 34, not 32."),
    ("show dyck --depth 0", "mapformers: depth must be at least 1, not 0."),
    ("show dyck --length 99999998", "take too long to count: choose a length of at most"),
    ("show dyck --types 9999999", "mapformers: types must be at most 1000000, not 9999999."),
    ("show dyck --loss f1", "'valid-set', 'next-token'"),
    ("train --task dyck --model mapwm --length 7", "length must be even"),
    (
        "show family-tree --couples 0",
        "mapformers: A family needs a founding couple: couples must be at least 1, not 0.",
    ),
    ("show family-tree --generations 100000000", "mapformers: generations must be at most 10000, not 100000000."),
    ("show family-tree --max-children 99", "lower generations, max_children or couples"),
    ("show family-tree --trees old", "'fresh', 'fixed'"),
    ("show selective-copy --n-symbols 0", "mapformers: n_symbols must be at least 1, not 0."),
    ("show selective-copy --n-blanks -1", "mapformers: n_blanks must be at least 0, not -1."),
    ("show selective-copy --n-kinds 0", "mapformers: n_kinds must be at least 1, not 0."),
    ("show selective-copy --n-kinds 9999999", "mapformers: n_kinds must be at most 1000000, not 9999999."),
    ("show selective-copy --n-blanks 9999999999", "choose shorter sequences or a smaller batch"),
    ("show graph --world dihedrl", "There is no world named 'dihedrl'; did you mean 'dihedral'?"),
    ("show graph --world nowhere.json", "Cannot read the world nowhere.json: no such file or directory; give the path"),
    ("show graph --start hall", "'fixed', 'random'"),
    # the model
    (TRAIN + "--rank 0", "rank must be at least 1, not 0"),
    (TRAIN + "--rank -1", "rank must be at least 1, not -1"),
    (TRAIN + "--rank 99", "rank 99 needs at least as many rotation blocks; a head of 64 has 32"),
    (TRAIN + "--d-model 7", "even size, not 7"),
    (TRAIN + "--d-model 0", "d_model must be at least 1, not 0"),
    (TRAIN + "--n-heads 3 --d-model 64", "d_model 64 cannot be divided into 3 heads"),
    (TRAIN + "--n-heads 0", "n_heads must be at least 1, not 0"),
    (TRAIN + "--n-heads 64", "even size, not 1"),
    (TRAIN + "--head-dim 3", "even size, not 3"),
    (TRAIN + "--head-dim 0", "head_dim must be at least 1, not 0"),
    (TRAIN + "--mlp-ratio 0", "mlp_ratio must be at least 1, not 0"),
    (TRAIN + "--n-layers 0", "n_layers must be a whole number of at least 1, not 0"),
    (TRAIN + "--attn-temperature 0", "attn_temperature must be above 0, not 0"),
    (TRAIN + "--attn-temperature nan", "attn_temperature must be"),
    (TRAIN + "--attn-temperature inf", "attn_temperature must be"),
    (TRAIN + "--omega-max 0", "omega_max must be above 0, not 0"),
    (TRAIN + "--omega-max inf", "omega_max must be"),
    (TRAIN + "--base 0.5", "base must be at least 2π/omega_max = 6.283, not 0.5"),
    (TRAIN + "--base inf", "base must be"),
    (TRAIN + "--model mapem --attend x", "'os', 's', 'o'"),
    (TRAIN + "--model mapem --origin-std 0", "origin_std must be above 0, not 0"),
    (TRAIN + "--model rope --rope-base 1", "rope_base must be above 1, not 1"),
    # the training
    (TRAIN + "--lr -1", "lr must be above 0, not -1"),
    (TRAIN + "--lr 0", "lr must be above 0, not 0"),
    (TRAIN + "--lr nan", "lr must be"),
    (TRAIN + "--lr inf", "lr must be"),
    (TRAIN + "--seed -1", "seed must not be negative, but is -1"),
    (TRAIN + "--sequences 0", "sequences must be at least 1, not 0"),
    (TRAIN + "--batch-size 0", "batch_size must be at least 1, not 0"),
    (TRAIN + "--warmup-steps -1", "warmup_steps must not be negative"),
    (TRAIN + "--weight-decay -1", "weight_decay must not be negative"),
    (TRAIN + "--weight-decay inf", "weight_decay must"),
    (TRAIN + "--beta1 1", "beta1 must lie in [0, 1), not 1"),
    (TRAIN + "--beta2 -0.5", "beta2 must lie in [0, 1), not -0.5"),
    (TRAIN + "--clip 0", "clip must be above 0, not 0"),
    (TRAIN + "--final-lr 2", "final_lr is a share of lr between 0 and 1, not 2"),
    (TRAIN + "--log-every 0", "log_every must be at least 1, not 0"),
    (TRAIN + "--eval-every 0", "eval_every must be at least 1, not 0"),
    (TRAIN + "--checkpoint-every 0", "checkpoint_every must be at least 1, not 0"),
    # what it is computed on
    (TRAIN + "--accumulate 0", "accumulate must be at least 1, not 0"),
    (TRAIN + "--accumulate 3", "choose a --batch-size that 3 divides"),
    (TRAIN + "--device tpu", "'auto', 'cpu', 'cuda', 'mps'"),
    (TRAIN + "--precision float16", "'float32', 'bfloat16'"),
    (TRAIN + "--track nonsense", "There is no tracker 'nonsense'; choose among "),
    # the other commands
    ("show navigation --seed -1", "seed must not be negative, but is -1"),
    ("demo --scale smoke --seed -1", "seed must not be negative, but is -1"),
    ("eval mine --n-sequences 0", "n-sequences must be at least 1, not 0"),
    ("reproduce table2 --seeds 0", "seeds must be at least 1, not 0"),
    ("reproduce table2 --jobs 0", "jobs must be at least 1, not 0"),
    ("bench --repeats 0", "repeats must be at least 1, not 0"),
    ("bench nothing", "invalid choice 'nothing' for argument 'name'. Expected one of ('throughput', "),
    # folders
    ("train --resume --out nowhere", "nowhere is not a run folder yet: to start a run there, name its --task and"),
    (TRAIN + "--resume --overwrite", "--resume continues a run and --overwrite starts it anew; give one of them."),
    (TRAIN + "--out ''", "--out needs the name of a folder, but got an empty one"),
    (TRAIN + "--out=", "--out needs the name of a folder, but got an empty one"),
    (TRAIN + "--out ' '", "--out needs the name of a folder, but got an empty one"),
    ("train --resume --out ''", "--out needs the name of a folder, but got an empty one"),
    ("demo --scale smoke --out ''", "--out needs the name of a folder, but got an empty one"),
    ("reproduce table2 --scale smoke --runs ''", "--runs needs the name of a folder, but got an empty one"),
    ("reproduce table2 --scale smoke --results ''", "--results needs the name of a folder, but got an empty one"),
    ("bench --write ''", "--write needs the name of a folder, but got an empty one"),
    ("report table2 --results ''", "--results needs the name of a folder, but got an empty one"),
    (TRAIN + "--out /dev/null/mine", "Cannot write to /dev/null/mine: not a directory; choose another folder"),
    ("eval nowhere", "There is no folder nowhere"),
    ("report table2", "mapformers reproduce table2"),
    ("report --results nowhere", "nowhere has no results of ablations or "),
    ("report --write", "results has no results of ablations or "),
]


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def assert_refused(capsys, folder, line, sentence):
    """Exit code 2, one clear line, nothing else printed, nothing changed."""
    before = listing(folder)
    code = main(shlex.split(line))
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert code == 2
    assert printed.out == ""
    assert printed.err.startswith("mapformers: ") and printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    assert [word for word in JARGON if word in printed.err] == [], printed.err
    assert listing(folder) == before


CASES += MORE_CASES

# The tests of tasks, of models and of the optimiser refuse these values too; one of each kind is always typed.
REFUSED_WITHOUT_THE_SHELL = {
    *(TRAIN + words for words in (
        "--dims 0", "--grid 1", "--grid -8", "--steps 0", "--p-empty nan", "--n-objects 0", "--max-run 0",
        "--rank -1", "--d-model 7", "--d-model 0", "--n-heads 3 --d-model 64", "--n-heads 0", "--n-heads 64",
        "--head-dim 3", "--head-dim 0", "--mlp-ratio 0", "--n-layers 0", "--attn-temperature 0",
        "--attn-temperature nan", "--omega-max 0", "--base 0.5", "--model mapem --origin-std 0",
        "--model rope --rope-base 1", "--lr 0", "--lr nan", "--sequences 0", "--batch-size 0", "--warmup-steps -1",
        "--weight-decay -1", "--clip 0", "--final-lr 2", "--checkpoint-every 0",
    )),
    "show navigation --grid 1", "show navigation --max-run 0", "show navigation --n-objects 0",
    "show navigation --p-empty -1", "show navigation --n-objects 99999999999",
    "show dyck --depth 17", "show dyck --depth 0", "train --task dyck --model mapwm --length 7",
    "train --task dyck --model mapwm --types 0", "train --task dyck --model mapwm --depth 99",
    "show family-tree --generations 100000000", "show family-tree --generations 0", "show family-tree --max-children 0",
    "train --task family-tree --model mapwm --generations 0",
    "show selective-copy --n-blanks -1", "show selective-copy --n-kinds 0",
    "train --task selective-copy --model mapwm --n-symbols 0",
    "train --task navigation --model mapem --rank 0", "train --task navigation --model mapwm-nc --rank -3",
    "train --task navigation --model mapwm --mlp-ratio -1",
}  # fmt: skip


def test_there_are_three_hundred_cases():
    lines = {line for line, _ in CASES}
    assert len(lines) + 2 * len(WORLDS) + len(FOLDERS) >= 300
    assert lines > REFUSED_WITHOUT_THE_SHELL


@pytest.mark.parametrize(
    ("line", "sentence"),
    [thorough(*case) if case[0] in REFUSED_WITHOUT_THE_SHELL else case for case in CASES],
    ids=[line.replace(TRAIN, "train ... ") for line, _ in CASES],
)
def test_wrong_words(capsys, scratch, line, sentence):
    assert_refused(capsys, scratch, line, sentence)


WORLD = {
    "name": "flat",
    "nodes": ["hall", "bath"],
    "actions": ["in", "out"],
    "edges": [["hall", "in", "bath"], ["bath", "out", "hall"]],
}
WORLDS = {
    "a missing node": (
        {"edges": [*WORLD["edges"], ["hall", "out", "attic"]]},
        "which is not a node; add it to 'nodes'",
    ),
    "two ways": ({"edges": [*WORLD["edges"], ["hall", "in", "hall"]]}, "give the two edges different actions."),
    "no exit": ({"edges": WORLD["edges"][:1]}, "node 'bath' has no exit, so a walk would end there; add an edge"),
    "out of reach": (
        {"nodes": ["hall", "bath", "attic"], "edges": [*WORLD["edges"], ["attic", "out", "hall"]]},
        "node 'attic' cannot be reached from the start 'hall'; add an edge that leads there, leave the node out",
    ),
    "half a character": ({"name": "\ud800"}, "must be plain text on one line"),
    "two lines": ({"nodes": ["hall\n", "bath"]}, "must be plain text on one line"),
    "no world": (None, "world.json: this is not valid JSON"),
    "a folder": ("", "Cannot read the world world.json: it is a folder; give the path of a JSON file."),
}


@pytest.mark.parametrize(
    "command", ["show graph", "train --task graph --model mapwm --scale smoke"], ids=["show", "train"]
)
@pytest.mark.parametrize("case", WORLDS)
def test_wrong_worlds(capsys, scratch, case, command):
    change, sentence = WORLDS[case]
    if change == "":
        (scratch / "world.json").mkdir()
    else:
        (scratch / "world.json").write_text("{" if change is None else json.dumps({**WORLD, **change}))
    assert_refused(capsys, scratch, f"{command} --world world.json", sentence)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "mine"
    assert main(shlex.split(f"{TRAIN} --d-model 16 --out {folder}")) == 0
    return folder


def edit_config(change):
    """Rewrite config.json after ``change`` was applied to its content."""

    def edit(folder):
        file = folder / "mine/config.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return edit


def write(name, content):
    return lambda folder: (folder / name).write_text(content)


def truncate(name):
    def cut(folder):
        (file,) = (folder / "mine/checkpoints").glob(f"*/{name}")
        file.write_bytes(file.read_bytes()[:-10])

    return cut


def manifest(content):
    def put(folder):
        (file,) = (folder / "mine/checkpoints").glob("*/manifest.json")
        file.write_text(content)

    return put


FOLDERS = {
    "an existing run": (
        lambda folder: None,
        TRAIN + "--out mine",
        "mine already holds a run; continue it with --resume",
    ),
    "below a file": (write("file", ""), TRAIN + "--out file/mine", "Cannot write to file/mine: not a directory"),
    "a file": (write("file", ""), TRAIN + "--out file", "Cannot write to file: not a directory"),
    "demo below a file": (write("file", ""), "demo --scale smoke --out file/x", "Cannot write to file/x"),
    "eval of a file": (write("file", ""), "eval file", "file is not a run folder"),
    "empty folder": (lambda folder: (folder / "empty").mkdir(), "eval empty", "empty is not a run folder"),
    "a folder inside a run": (lambda folder: None, "eval mine/checkpoints", "mine/checkpoints is not a run folder"),
    "unknown split": (lambda folder: None, "eval mine --splits iid odd-dense", "did you mean 'ood-dense'?"),
    "no sequences": (lambda folder: None, "eval mine --n-sequences 0", "must be at least 1, not 0"),
    "broken config": (write("mine/config.json", '{"task": '), "eval mine", "config.json is not readable JSON"),
    "empty config": (write("mine/config.json", "{}"), "eval mine", "config.json is not the config of a run"),
    "list as config": (write("mine/config.json", "[]"), "eval mine", "config.json is not the config of a run"),
    "binary config": (
        lambda folder: (folder / "mine/config.json").write_bytes(b"\xff\xfe\x00"),
        "eval mine",
        "config.json is not readable JSON",
    ),
    "config without training": (edit_config(lambda c: c.update(train=None)), "eval mine", "config.json"),
    "config with a list": (edit_config(lambda c: c["task"].update(settings=[])), "eval mine", "config.json"),
    "config with a word": (edit_config(lambda c: c.update(seed="x")), "eval mine", "config.json"),
    "config of an unknown model": (
        edit_config(lambda c: c["model"]["layers"][0].update(name="mapmw")),
        "eval mine",
        "There is no model named 'mapmw'; did you mean 'mapwm'?",
    ),
    "config with an unknown setting": (
        edit_config(lambda c: c["task"]["settings"].update(dimz=2)),
        "eval mine",
        "named 'dimz'; did you mean 'dims'?",
    ),
    "truncated weights": (truncate("weights.safetensors"), "eval mine", "step-00000002 is damaged"),
    "truncated manifest": (truncate("manifest.json"), "eval mine", "step-00000002 is damaged"),
    "list as manifest": (manifest("[]"), "eval mine", "step-00000002 is damaged"),
    "empty manifest": (manifest("{}"), "eval mine", "step-00000002 is damaged"),
    "manifest without a step": (manifest('{"sha256": {}}'), "eval mine", "step-00000002 is damaged"),
    "no checkpoint": (lambda folder: shutil.rmtree(folder / "mine/checkpoints"), "eval mine", "train it first"),
    "weights of another width": (edit_config(lambda c: c["model"].update(d_model=32)), "eval mine", "do not fit"),
    "weights of another rank": (
        edit_config(lambda c: c["model"]["layers"][0]["options"].update(rank=1)),
        "eval mine",
        "do not fit",
    ),
    "weights of another vocabulary": (
        edit_config(lambda c: c["task"]["settings"].update(n_objects=30)),
        "eval mine --splits iid",
        "out of range: the model knows 0 to 20",
    ),
    "resume of a broken config": (
        write("mine/config.json", "{"),
        TRAIN + "--resume --out mine",
        "config.json is not readable JSON",
    ),
    "results that are a file": (
        write("file", ""),
        "reproduce table2 --scale smoke --results file",
        "Cannot write to file",
    ),
    "runs that are a file": (
        write("file", ""),
        "reproduce table2 --scale smoke --rows MapWM-r1 --runs file",
        "Cannot write to file",
    ),
    "broken results": (write("table2.json", "{"), "report table2 --results .", "table2.json is not readable JSON"),
    "empty results": (write("table2.json", "{}"), "report table2 --results .", "table2.json"),
    "list as results": (write("table2.json", "[]"), "report table2 --results .", "table2.json"),
    "broken results to add to": (
        write("table2-smoke.json", "{"),
        "reproduce table2 --scale smoke --results .",
        "table2-smoke.json is not readable JSON",
    ),
    "empty results to add to": (
        write("table2-smoke.json", "{}"),
        "reproduce table2 --scale smoke --results .",
        "table2-smoke.json",
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_wrong_folders(capsys, scratch, trained, case):
    prepare, line, sentence = FOLDERS[case]
    shutil.copytree(trained, scratch / "mine")
    prepare(scratch)
    capsys.readouterr()
    assert_refused(capsys, scratch, line, sentence)


def test_a_damaged_only_checkpoint_is_not_said_to_have_one_before_it(capsys, scratch, trained):
    shutil.copytree(trained, scratch / "mine")
    truncate("weights.safetensors")(scratch)
    assert main(["eval", "mine"]) == 2
    assert "the one before" not in capsys.readouterr().err


def test_a_refused_model_does_not_block_the_right_command(capsys, scratch):
    assert main(shlex.split(TRAIN + "--rank 99")) == 2
    assert main(shlex.split(TRAIN)) == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--rnak 3", "did you mean --rank?"), ("--lr -1", "mapformers: lr must be above 0, not -1.0.")],
    ids=["unknown", "value"],
)
def test_a_terminal_without_unicode_gets_one_sentence_too(monkeypatch, encoding, option, sentence):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    code = main(shlex.split(TRAIN + option))
    streams[1].flush()
    written = streams[1].buffer.getvalue().decode(encoding)
    assert code == 2
    assert sentence in written and written.count("\n") == 1
    assert not any(word in written for word in JARGON), written
