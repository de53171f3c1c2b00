"""Install the built wheel alone into an empty environment, and use it there as a stranger would.

  make build && python scripts/try_wheel.py
  python scripts/try_wheel.py --python python3.12 --extras all --notebooks

Nothing of the repository is on the path: commands run in a folder of their own, and notebooks are copied there first.
The versions of all packages are those that are tested (constraints.txt). Where `uv` is there, it installs them, faster
than pip.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parent.parent
LARGEST = 2_000_000  # bytes of a wheel
LONGEST_CELL = 1800  # seconds: a machine may be busy
RUN = ["mapformers", "train", "--task", "navigation", "--model", "mapwm", "--scale", "smoke"]
TABLE = ["mapformers", "reproduce", "table2", "--scale", "smoke", "--worlds", "2D"]
TEXT = ["mapformers", "lm", "prepare", "python:json", "--val", "0.2"]
COMMANDS = [
    ["mapformers", "--version"],
    ["mapformers", "doctor"],
    ["mapformers", "list"],
    ["mapformers", "show", "navigation"],
    ["mapformers", "demo", "--scale", "smoke", "--out", "demo"],
    [*RUN, "--out", "run"],
    ["mapformers", "eval", "run"],
    ["mapformers", "analyze", "run"],
    ["mapformers", "explore", "run", "--export", "page.html"],
    [*TABLE, "--rows", "MapWM-r2"],
    ["mapformers", "report", "table2", "--scale", "smoke"],
    ["mapformers", "bench", "throughput", "--sizes", "smoke"],
    [*TEXT, "--tokenizer", "bytes", "--out", "text"],
    ["mapformers", "lm", "train", "--data", "text", "--model", "mapwm", "--preset", "smoke", "--out", "text-run"],
    ["mapformers", "lm", "generate", "text-run", "--prompt", "def ", "--tokens", "8"],
]
OF_EXTRAS = {
    "hf": [["python", "-c", "from mapformers.hf import from_run; from_run('run').save_pretrained('for-transformers')"]],
    "eval": [["mapformers", "lm", "eval", "text-run", "--windows", "4", "--blimp", "blimp"]],
    "gpt2": [[*TEXT, "--tokenizer", "gpt2", "--out", "text-gpt2"]],
    "onnx": [["mapformers", "export", "run", "--onnx", "run.onnx"]],
    "slurm": [[*TABLE, "--rows", "RoPE (1L)", "--cluster", "local"]],
    "track": [[*RUN, "--out", "tracked", "--track", "tensorboard"]],
}
PAIR = {
    "sentence_good": "The cats sleep.",
    "sentence_bad": "The cats sleeps.",
    "UID": "agreement",
    "field": "morphology",
    "linguistics_term": "subject_verb_agreement",
    "pairID": "0",
}


def wheel() -> Path:
    built = sorted((PROJECT / "dist").glob("*.whl"))
    if not built:
        sys.exit("There is no wheel in dist; run `make build` first.")
    return built[-1]


def timed(title: str, command: list[str], cwd: Path) -> bool:
    start = time.monotonic()
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=alone, capture_output=True, text=True)
    print(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {time.monotonic() - start:6.1f} s  {title}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode == 0


def use(folder: Path, extras: list[str], notebooks: bool) -> bool:
    """Install the wheel into folder/venv, and run every command; all are run, whichever fail."""
    programs = folder / "venv" / "bin"
    uv = shutil.which("uv")
    make = [uv, "venv", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    pip = [uv, "pip", "install", "--python", str(programs / "python")] if uv else [str(programs / "pip"), "install"]
    fine = timed("an empty environment", [*make, str(folder / "venv")], folder)
    wanted = [f"{wheel()}[{','.join(extras)}]" if extras else str(wheel())]
    wanted += ["jupyter", "nbmake"] if notebooks else []
    tested = ["--quiet", "--constraint", str(PROJECT / "constraints.txt")]
    fine &= timed(f"pip install {' '.join(Path(word).name for word in wanted)}", [*pip, *tested, *wanted], folder)
    (folder / "blimp").mkdir()
    (folder / "blimp" / "agreement.jsonl").write_text(json.dumps(PAIR) + "\n", encoding="utf-8")
    for words in [*COMMANDS, *(words for name in extras for words in OF_EXTRAS[name])] if fine else []:
        fine &= timed(" ".join(words), [str(programs / words[0]), *words[1:]], folder)
    if notebooks:
        shutil.copytree(PROJECT / "notebooks", folder / "notebooks")
        books = sorted(str(path) for path in (folder / "notebooks").glob("*.ipynb"))
        run = [str(programs / "python"), "-m", "pytest", "--nbmake", f"--nbmake-timeout={LONGEST_CELL}", *books]
        fine &= timed("pytest --nbmake", run, folder)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the interpreter to make the environment with, if not this one")
    parser.add_argument(
        "--extras", nargs="*", default=[], choices=[*OF_EXTRAS, "all"], help="extras to install and use"
    )
    parser.add_argument("--notebooks", action="store_true", help="also install Jupyter and run the notebooks")
    asked = parser.parse_args()
    if asked.python:
        again = [word for word in sys.argv[1:] if word not in ("--python", asked.python)]
        return subprocess.run([asked.python, __file__, *again]).returncode
    size = wheel().stat().st_size
    small = size < LARGEST
    print(f"{'ok    ' if small else 'FAILED'} {wheel().name}: {size / 1e6:.2f} MB, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as name:
        fine = use(Path(name), list(OF_EXTRAS) if "all" in asked.extras else asked.extras, asked.notebooks)
    return 0 if fine and small else 1


if __name__ == "__main__":
    sys.exit(main())
