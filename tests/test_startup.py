"""What is not imported: asking for names, help or the version must not wait for torch."""

import subprocess
import sys

SLOW = ("torch", "accelerate", "matplotlib", "transformers", "numpy")


QUICK = ("", "--help", "--version", "list", "list models", "list recipes", "trian")


def imported_after(*pieces: str) -> list[set[str]]:
    """Which of the slow packages a fresh interpreter has loaded after each piece of code."""
    loaded = f"print('\\nLOADED', *[name for name in {SLOW!r} if name in sys.modules])"
    check = "\n".join(["import sys", *(f"{code}\n{loaded}" for code in pieces)])
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.split()[:1] == ["LOADED"]]


def test_these_commands_answer_without_torch():
    after = imported_after(*(f"from mapformers.cli.main import main\nmain({line.split()!r})" for line in QUICK))
    assert dict(zip(QUICK, after, strict=True)) == {line: set() for line in QUICK}


def test_importing_the_library_imports_nothing_slow_until_it_is_used():
    names = "import mapformers as mf\nmf.list_models(), mf.list_tasks(), mf.list_recipes()"
    before, after = imported_after(names, "mf.build_model")
    assert before == set() and "torch" in after


def test_building_and_measuring_a_model_loads_neither_accelerate_nor_matplotlib():
    code = "import mapformers as mf\nmf.build_model('mapwm', vocab_size=5)\nmf.build_task('navigation')\nmf.evaluate"
    [after] = imported_after(code)
    assert after <= {"torch", "numpy"}
