"""A new layer is one file: examples/alibi.py, a row that is not ours, passes every test of registered layers."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent
ALIBI = PROJECT / "examples" / "alibi.py"


def test_the_registry_tests_pass_for_a_layer_in_a_file_of_its_own():
    files = [f"tests/properties/{name}.py" for name in ("test_layers", "test_layers_alone", "test_streaming")]
    words = ["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *files, "-k", "alibi and not compil"]
    done = subprocess.run(
        [sys.executable, *words, "--import-plugin", str(ALIBI)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.split(" passed")[0].split()[-1])
    assert passed > 40 and "failed" not in done.stdout
