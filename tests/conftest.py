"""One thread, repeatable examples, seeded tests; ``helpers`` can be imported under any pytest import mode."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BF16 = "import torch; torch.set_num_threads(1); torch.randn(24, 16).bfloat16() @ torch.randn(16, 48).bfloat16()"


def avoid_broken_amx() -> None:
    """Some virtual machines announce AMX and then refuse it, which kills the process at the first bf16 product."""
    announced = Path("/proc/cpuinfo").exists() and "amx_bf16" in Path("/proc/cpuinfo").read_text()
    if announced and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        died = subprocess.run([sys.executable, "-c", BF16], capture_output=True, check=False).returncode < 0
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16" if died else "DEFAULT"  # worker processes inherit it


avoid_broken_amx()

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--import-plugin", action="append", default=[], help="a file whose layers and tasks are tested too"
    )
    parser.addoption("--slurm", action="store_true", help="also start a real Slurm and send it an array job")
    parser.addoption(
        "--fuzz", type=float, default=0, metavar="SECONDS", help="how long each test of tests/fuzz looks for new files"
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="compile every layer and variant, run every variant in the page's reader, and all that is marked thorough",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is collected, so that tests that loop over a registry find what the file registers."""
    from mapformers.plugins import import_plugins

    import_plugins(config.getoption("--import-plugin"))
    import helpers  # it lists what is registered

    helpers.THOROUGH = config.getoption("--thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Second cases of tests that start processes take long and rarely find what the first does not."""
    if not config.getoption("--thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(autouse=True)
def _forget_plugins() -> Iterator[None]:
    """What a test registers is gone after it: others list what there is."""
    from mapformers import plugins, registry

    rooms = (registry.LAYERS, registry.TASKS, registry.RECIPES)
    before, modules, inherited = (
        [list(room._entries) for room in rooms],
        set(sys.modules),
        os.environ.get(plugins.VARIABLE),
    )
    yield
    for room, known in zip(rooms, before):
        for name in set(room._entries) - set(known):
            if not room.is_own(name):
                del room._entries[name]
    for name in set(sys.modules) - modules:
        if name.startswith("mapformers_plugin_"):
            del sys.modules[name]
    os.environ.pop(plugins.VARIABLE, None)
    if inherited is not None:
        os.environ[plugins.VARIABLE] = inherited


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
