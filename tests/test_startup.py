"""What is not imported: asking for names, help or the version must not wait for torch."""

import subprocess
import sys

import pytest

SLOW = ("torch", "accelerate", "matplotlib", "transformers", "numpy")


def imported_after(code: str) -> set[str]:
    """Which of the slow packages a fresh interpreter has loaded after running some code."""
    check = f"import sys\n{code}\nprint('LOADED', *[name for name in {SLOW!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("line", ["", "--help", "--version", "list", "list models", "list recipes", "trian"])
def test_these_commands_answer_without_torch(line: str):
    assert imported_after(f"from mapformers.cli.main import main\nmain({line.split()!r})") == set()


def test_importing_the_library_imports_nothing_slow_until_it_is_used():
    assert imported_after("import mapformers as mf\nmf.list_models(), mf.list_tasks(), mf.list_recipes()") == set()
    assert "torch" in imported_after("import mapformers as mf\nmf.build_model")


def test_building_and_measuring_a_model_loads_neither_accelerate_nor_matplotlib():
    code = "import mapformers as mf\nmf.build_model('mapwm', vocab_size=5)\nmf.build_task('navigation')\nmf.evaluate"
    assert imported_after(code) <= {"torch", "numpy"}
