"""Install the built wheel alone into an empty environment, and use it there as a stranger would.

  make build && python scripts/try_wheel.py
  python scripts/try_wheel.py --python python3.12 --extras hf track --notebooks

Nothing of the repository is on the path: commands run in a folder of their own, and notebooks are copied there first.
`--constraint constraints.txt` installs the versions that are tested.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parent.parent
RUN = ["--task", "navigation", "--model", "mapwm", "--scale", "smoke", "--out", "run"]
COMMANDS = [
    ["mapformers", "--version"],
    ["mapformers", "doctor"],
    ["mapformers", "list"],
    ["mapformers", "show", "navigation"],
    ["mapformers", "demo", "--scale", "smoke", "--out", "demo"],
    ["mapformers", "train", *RUN],
    ["mapformers", "eval", "run"],
    ["mapformers", "reproduce", "table2", "--scale", "smoke", "--rows", "MapWM-r2", "--worlds", "2D"],
    ["mapformers", "report", "table2"],
    ["mapformers", "bench", "throughput", "--sizes", "smoke"],
]


def wheel() -> Path:
    built = sorted((PROJECT / "dist").glob("*.whl"))
    if not built:
        sys.exit("There is no wheel in dist; run `make build` first.")
    return built[-1]


def timed(title: str, command: list[str], cwd: Path) -> bool:
    start = time.monotonic()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    print(f"{'ok    ' if done.returncode == 0 else 'FAILED'} {time.monotonic() - start:6.1f} s  {title}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to make the environment with")
    parser.add_argument("--extras", nargs="*", default=[], help="extras to install with the wheel")
    parser.add_argument("--notebooks", action="store_true", help="also install Jupyter and run the notebooks")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timed("an empty environment", [asked.python, "-m", "venv", str(folder / "venv")], folder)
        programs = folder / "venv" / "bin"
        wanted = [f"{wheel()}[{','.join(asked.extras)}]" if asked.extras else str(wheel())]
        wanted += ["jupyter", "nbmake"] if asked.notebooks else []
        pip = [str(programs / "pip"), "install", "--quiet", "--constraint", str(PROJECT / "constraints.txt")]
        fine = timed(f"pip install {' '.join(Path(word).name for word in wanted)}", [*pip, *wanted], folder)
        for words in COMMANDS if fine else []:
            fine &= timed(" ".join(words), [str(programs / words[0]), *words[1:]], folder)
        if fine and asked.notebooks:
            shutil.copytree(PROJECT / "notebooks", folder / "notebooks")
            books = sorted(str(path) for path in (folder / "notebooks").glob("*.ipynb"))
            fine = timed("pytest --nbmake", [str(programs / "python"), "-m", "pytest", "--nbmake", *books], folder)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
