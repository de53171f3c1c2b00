"""Generated text is what the model says, alone or in a batch, and what is drawn is drawn from what was asked for."""

import json

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import mapformers as mf
from helpers import EVERYTHING, FIRST_CASES, HYBRID, VOCAB, Case, draw_tokens, tiny_corpus
from mapformers.cli.main import main
from mapformers.errors import UserError
from mapformers.lie import generators
from mapformers.lm import Corpus, generation
from mapformers.lm.detokenizer import StreamingDetokenizer
from mapformers.lm.generation import Sampling, generate, stream
from mapformers.lm.tokenizer import ByteTokenizer

PROMPTS = [draw_tokens(length, seed=length).tolist() for length in (1, 7, 4, 7)]


def by_the_full_forward(model, prompt, n_tokens):
    """The likeliest token of the whole sequence read anew at every step."""
    tokens = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(n_tokens):
            tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(dim=-1)), dim=1)
    return tokens[0, len(prompt) :].tolist()


@pytest.mark.parametrize("case", [*FIRST_CASES, HYBRID], ids=str)
def test_greedy_is_the_argmax_of_the_full_forward_and_a_batch_is_each_prompt_alone(case: Case):
    model = case.build(n_layers=1)
    together = generate(model, PROMPTS, 8)
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert found == by_the_full_forward(model, prompt, 8)
        assert found == generate(model, [prompt], 8)[0]


def test_drawn_tokens_depend_on_the_seed_of_their_row_alone():
    model = EVERYTHING.build()
    settings = {"temperature": 1.5, "top_p": 0.9}
    together = generate(model, PROMPTS, 12, seed=5, **settings)
    assert together == generate(model, PROMPTS, 12, seed=5, **settings)
    for row, prompt in enumerate(PROMPTS):
        assert generate(model, [prompt], 12, seed=5 + row, **settings)[0] == together[row]
        assert generate(model, [prompt], 5, seed=5 + row, **settings)[0] == together[row][:5]
    same = generate(model, [PROMPTS[1]] * 6, 12, seed=5, **settings)
    assert len({tuple(row) for row in same}) > 1
    assert generate(model, PROMPTS, 8, top_k=1, seed=3) == generate(model, PROMPTS, 8)


@pytest.mark.parametrize(
    "settings", [{"top_k": 3}, {"top_p": 0.6}, {"top_k": 5, "top_p": 0.5}, {"temperature": 0.3}, {"temperature": 3.0}]
)
def test_numbers_spread_evenly_draw_tokens_as_often_as_their_probability(settings):
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1))
    n = 20_000
    numbers = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    drawn = Sampling(**settings).choose(logits.expand(n, -1), numbers)
    shares = torch.bincount(drawn, minlength=VOCAB).double() / n
    chances = (logits[0].double() / settings.get("temperature", 1.0)).softmax(-1)
    kept = torch.zeros(VOCAB, dtype=torch.bool)
    ranked = chances.argsort(descending=True)[: settings.get("top_k", VOCAB)]
    total = 0.0
    for token in ranked.tolist():  # by hand: until what is kept has the share p of what top_k left
        kept[token] = True
        total += float(chances[token] / chances[ranked].sum())
        if total >= settings.get("top_p", 1.1):
            break
    expected = chances * kept / (chances * kept).sum()
    assert (shares - expected).abs().max() < 2 / n + 1e-9
    assert not shares[~kept].any()


def test_the_ends_of_the_interval_draw_the_first_and_the_last_that_is_possible():
    logits = torch.tensor([[0.0, 2.0, 1.0, -3.0]])
    for settings, last in (({"top_k": 2}, 2), ({"top_p": 0.7}, 2), ({"temperature": 1.0}, 3)):
        choose = Sampling(**settings).choose
        assert choose(logits, torch.tensor([0.0], dtype=torch.float64)).item() == 1
        assert choose(logits, torch.tensor([1.0], dtype=torch.float64)).item() == last


def test_a_temperature_near_zero_draws_the_likeliest_token():
    logits = torch.tensor([[-3.0, -1.0, -2.0], [5.0, 2.0, 1.0]])
    for temperature in (1e-3, 1e-310):
        drawn = Sampling(temperature=temperature).choose(logits, torch.tensor([0.99, 0.5], dtype=torch.float64))
        assert drawn.tolist() == [1, 0]


def test_a_row_ends_at_its_stop_and_the_others_go_on():
    model = Case("mapwm").build()
    free = generate(model, PROMPTS, 10)
    stop = free[1][2]
    ended = generate(model, PROMPTS, 10, stop=stop)
    for row, found in zip(free, ended, strict=True):
        assert found == (row[: row.index(stop) + 1] if stop in row else row)
    assert len(ended[1]) <= 3


def test_a_long_prompt_is_read_in_pieces(monkeypatch):
    model = HYBRID.build()
    expected = generate(model, PROMPTS, 5)
    monkeypatch.setattr(generation, "PIECE", 2)
    assert generate(model, PROMPTS, 5) == expected


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_what_generating_leaves_behind_can_be_differentiated(case: Case):
    """Tables that are made once, by whoever asks first, are no inference tensors."""
    generators._entries.cache_clear()
    model = case.build(dtype=torch.float32)
    generate(model, [[1, 2]], 2)
    with sdpa_kernel(SDPBackend.MATH):
        loss = model(torch.tensor([[1, 2, 3]])).square().sum()
        torch.autograd.grad(loss, list(model.parameters()), create_graph=True, allow_unused=True)


def test_tokens_come_as_they_are_made_and_the_model_is_left_as_it_was():
    model = Case("mapwm").build().train()
    steps = stream(model, [PROMPTS[1]], 5)
    first = next(steps)
    assert torch.is_grad_enabled() and not model.training
    assert [first[0], *(step[0] for step in steps)] == generate(model, [PROMPTS[1]], 5)[0]
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, not 0.0; leave it out for the likeliest token"),
        ({"temperature": -1.0}, "temperature must be above 0, not -1.0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"seed": -1}, "seed must be between 0"),
        ({"seed": 2**62 + 1}, "seed must be between 0"),
        ({"topk": 3}, "There is no setting named 'topk'; did you mean 'top_k'"),
        ({"top_k": 2.5}, "top_k must be a whole number or nothing, not 2.5"),
        ({"n_tokens": 0}, "n_tokens must be at least 1, not 0"),
        ({"n_tokens": 2.5}, "n_tokens must be a whole number, not 2.5"),
        ({"prompts": []}, "Give at least one prompt"),
        ({"prompts": [[1], []]}, "A prompt must have at least one token"),
        ({"prompts": [1, 2, 3]}, "Every prompt must be a list of token ids, or a tensor of one dimension, not 1"),
        ({"prompts": [[1.5]]}, r"Every prompt must be a list of token ids.*, not \[1.5\]"),
        ({"prompts": ["abc"]}, "Every prompt must be a list of token ids.*, not 'abc'"),
        ({"prompts": torch.ones(1, 2)}, r"Every prompt must be .*, not torch.float32 of shape \(2,\)"),
        ({"prompts": [[VOCAB]]}, "Token 11 is out of range"),
        ({"model": torch.nn.Linear(2, 2)}, "because it keeps a state"),
    ],
    ids=str,
)
def test_wrong_input_is_one_sentence(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        generate(**{"model": Case("rope").build(), "prompts": [[1]], "n_tokens": 3, **arguments})


def test_letters_are_shown_when_they_are_whole():
    text = StreamingDetokenizer(ByteTokenizer())
    shown = [text.add(byte) for byte in "aé→z".encode()]
    assert shown == ["a", "", "é", "", "", "→", "z"] and text.rest() == ""
    assert text.add(0xC3) == "" and text.rest() == "\ufffd"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on text, hardly trained."""
    place = tmp_path_factory.mktemp("runs") / "text"
    sizes = {"context": 16, "d_model": 16, "n_heads": 2, "n_layers": 1, "sequences": 4, "batch_size": 2}
    few = {"warmup_steps": 1, "eval_sequences": 2, "final_sequences": 2, "zero_mean_steps": 0}
    mf.train("text", "mapwm", scale="smoke", data=tiny_corpus(), out=place, **sizes, **few)
    return place


def test_the_command_prints_what_python_generates(folder, capsys, tmp_path):
    run, corpus = mf.load(folder), Corpus.open(tiny_corpus())
    prompts = ["ab", "some words é"]
    ids = [list(prompt.encode()) for prompt in prompts]
    found = generate(run.model, ids, 12, temperature=1.2, top_k=100, seed=4, stop=corpus.separator)
    line = ["lm", "generate", str(folder), "--tokens", "12", "--temperature", "1.2", "--top-k", "100", "--seed", "4"]
    (tmp_path / "prompts.txt").write_text("some words é\n", encoding="utf-8-sig")
    capsys.readouterr()
    assert main([*line, "--prompt", "ab", "--prompts-file", str(tmp_path / "prompts.txt"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [each["ids"] for each in said["results"]] == found and said["seed"] == 4
    assert [each["prompt"] for each in said["results"]] == prompts
    texts = []
    for new in found:
        ended = new[-1] == corpus.separator
        texts.append(bytes(new[: len(new) - ended]).decode(errors="replace"))
    assert [each["text"] for each in said["results"]] == texts
    assert main([*line, "--prompt", "ab"]) == 0
    assert capsys.readouterr().out == f"ab{texts[0]}\n"
    assert main([*line, "--prompt", prompts[0], "--prompt", prompts[1]]) == 0
    assert capsys.readouterr().out == f"ab{texts[0]}\n---\n{prompts[1]}{texts[1]}\n"


def test_without_a_prompt_it_begins_a_document(folder, capsys):
    run, corpus = mf.load(folder), Corpus.open(tiny_corpus())
    [found] = generate(run.model, [[corpus.separator]], 12, seed=2, temperature=1.0, stop=corpus.separator)
    line = ["lm", "generate", str(folder), "--tokens", "12", "--temperature", "1", "--seed", "2"]
    capsys.readouterr()
    assert main([*line, "--json"]) == 0
    [said] = json.loads(capsys.readouterr().out)["results"]
    assert (said["prompt"], said["ids"]) == ("", found)
    assert main(line) == 0
    assert capsys.readouterr().out == f"{said['text']}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--prompt=", "--prompt number 1 is empty; give it at least one letter, or no prompt for a new document."),
        ("--prompt=a\udcff", "--prompt number 1 is no text: it has bytes that are not UTF-8."),
        ("--prompts-file nowhere.txt", "Cannot read nowhere.txt: no such file or directory."),
        ("--prompt a --tokens 0", "--tokens must be at least 1, not 0."),
        ("--prompt a --temperature 0", "temperature must be above 0, not 0.0; leave it out for the likeliest token."),
        ("--prompt a --temperature -2", "temperature must be above 0, not -2.0"),
        ("--prompt a --top-k 0", "top_k must be at least 1, not 0."),
        ("--prompt a --top-p 2", "top_p must be above 0 and at most 1, not 2.0."),
        ("--prompt a --seed -1", "seed must be between 0 and"),
    ],
)
def test_wrong_words_are_answered_in_a_sentence(folder, words, sentence, capsys):
    assert main(["lm", "generate", str(folder), *words.split()]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_only_runs_on_text_generate_text(tmp_path, capsys):
    assert main(["lm", "generate", str(tmp_path / "nowhere"), "--prompt", "a"]) == 2
    assert "nowhere" in capsys.readouterr().err
    other = tmp_path / "other"
    tiny = {"sequences": 4, "batch_size": 2, "final_sequences": 2, "eval_sequences": 2, "d_model": 16, "steps": 8}
    mf.train("navigation", "mapwm", scale="smoke", out=other, grid=4, **tiny)
    capsys.readouterr()
    assert main(["lm", "generate", str(other), "--prompt", "a"]) == 2
    assert "is on navigation; give one that was trained on text" in " ".join(capsys.readouterr().err.split())
