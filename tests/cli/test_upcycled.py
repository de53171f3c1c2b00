"""The table of docs/transformers.md is made of what the example recorded."""

import json

from mapformers.cli.upcycled import upcycled_documents

FOUND = {"perplexity, plain": 4.5, "perplexity, with maps": 4.25, "accuracy, plain": 0.5, "accuracy, with maps": 1.0}


def test_the_table_has_the_recorded_figures(tmp_path):
    assert upcycled_documents(tmp_path) == {}
    (tmp_path / "docs/examples").mkdir(parents=True)
    page = tmp_path / "docs/transformers.md"
    page.write_text("before\n<!-- upcycle:begin -->\nold\n<!-- upcycle:end -->\nafter\n")
    assert upcycled_documents(tmp_path) == {}
    settings = {"layers": 4, "width": 64, "rank": 4, "text_steps": 400, "world_steps": 1500}
    record = {"found": FOUND, "settings": settings}
    (tmp_path / "docs/examples/upcycle.json").write_text(json.dumps(record))
    text = upcycled_documents(tmp_path)[page]
    assert "| a Llama of 4 layers of 64, maps of rank 4 | plain | with maps |" in text and "old" not in text
    assert "| perplexity per byte of text held back, after 600 steps | 4.500 | 4.250 |" in text
    assert "| accuracy on revisits, navigation in 2D, after 1500 steps | 0.500 | 1.000 |" in text
