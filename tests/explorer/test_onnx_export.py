"""A model as ONNX: onnxruntime answers as PyTorch does, in both forms; what cannot be done is said in a sentence."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import mapformers as mf
from helpers import Case
from mapformers.cli.main import main
from mapformers.errors import UserError
from mapformers.explorer import onnx
from mapformers.explorer.onnx import export_onnx

PAGE = Path(__file__).parent.parent.parent / "docs" / "export.md"
needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript and onnxruntime are not all installed",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the smallest kind."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    sizes = {"steps": 4, "grid": 4, "d_model": 8, "sequences": 8, "batch_size": 4, "final_sequences": 4}
    mf.train("navigation", "mapwm", scale="smoke", out=folder, **sizes)
    return folder


@needs_onnx
def test_a_step_as_the_page_of_the_docs_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Streamed from the empty state in a batch of two, where it was traced with another size."""
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)), {})


@needs_onnx
def test_whole_sequences_by_the_command(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import onnxruntime

    file = tmp_path / "mapwm.onnx"
    assert main(["export", str(saved), "--onnx", str(file), "--form", "sequence"]) == 0
    said = capsys.readouterr()
    assert "onnxruntime answers as PyTorch does" in said.out and said.err == ""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    model = mf.load(saved).model.eval()
    for shape in ((1, 2), (5, 70)):
        tokens = torch.randint(model.config.vocab_size, shape)
        (logits,) = session.run(None, {"tokens": tokens.numpy()})
        with torch.no_grad():
            assert (torch.from_numpy(logits) - model(tokens)).abs().max() < 1e-4


@needs_onnx
def test_what_differs_from_pytorch_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx, "_step_difference", lambda *given: 1e-3)
    with pytest.raises(UserError, match=r"differs from PyTorch by 1\.0e-03.*nothing was written"):
        export_onnx(Case("lstm").build(dtype=torch.float32, n_layers=1), tmp_path / "lstm.onnx")
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_a_sequence_whose_work_depends_on_its_length_is_refused(tmp_path: Path):
    model = Case("lstm").build(dtype=torch.float32, n_layers=1)
    with pytest.raises(UserError, match=r"Whole sequences of lstm cannot be exported.*give --form step"):
        export_onnx(model, tmp_path / "lstm.onnx", "sequence")
    assert list(tmp_path.iterdir()) == []


def test_wrong_input_is_refused_in_a_sentence(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def said(*line: str) -> str:
        assert main(["export", *line]) == 2
        error = capsys.readouterr().err
        assert error.startswith("mapformers: ") and error.count("\n") == 1
        return error

    file = str(tmp_path / "x.onnx")
    assert "There is no folder" in said(str(saved), "--onnx", str(tmp_path / "nowhere" / "x.onnx"))
    assert "is a folder; name the file" in said(str(saved), "--onnx", str(tmp_path))
    assert "--onnx is missing" in said(str(saved))
    assert "--form" in said(str(saved), "--onnx", file, "--form", "whole")
    monkeypatch.setattr(onnx, "find_spec", lambda name: object())
    assert "nowhere" in said(str(tmp_path / "nowhere"), "--onnx", file)
    monkeypatch.setattr(onnx, "find_spec", lambda name: None)
    assert "ONNX needs onnx and onnxscript: pip install 'mapformers[onnx]'" in said(str(saved), "--onnx", file)
    assert list(tmp_path.iterdir()) == []
