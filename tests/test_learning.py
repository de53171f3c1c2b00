"""A small MapWM learns to come back: it beats every player without a map, on the same fresh sequences."""

import torch
from torch.nn.functional import one_hot

import mapformers as mf
from mapformers.runs.config import TrainConfig
from mapformers.seeding import generator, initialisation
from mapformers.training.optimizer import build_optimizer, learning_rate

TASK = mf.build_task("navigation", dims=1, steps=32, grid=16)
TRAIN = TrainConfig(sequences=12_800, batch_size=32, lr=4e-3, warmup_steps=20)
FRESH = {"n_sequences": 256, "seed": 1}


def trained_mapwm():
    with initialisation(0):
        model = mf.build_model("mapwm", vocab_size=TASK.vocab_size, d_model=64, **TASK.model_defaults())
    optimizer = build_optimizer(model, TRAIN)
    for step in range(TRAIN.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, TRAIN)
        batch = TASK.sample("iid", TRAIN.batch_size, generator(0, "train", step))
        optimizer.zero_grad()
        TASK.loss(model(batch.tokens), batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN.clip)
        optimizer.step()
    return model


def always(token):
    return lambda tokens: torch.full_like(tokens, token)


def last_object(tokens):
    """What was last seen that was not empty."""
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    last = torch.where(tokens > TASK.empty_id, places, 0).cummax(dim=1).values
    return tokens.gather(1, last)


def commonest_object_so_far(tokens):
    counts = one_hot(tokens, TASK.vocab_size).cumsum(dim=1)
    return counts[..., TASK.empty_id + 1 :].argmax(dim=-1) + TASK.empty_id + 1


def steps_back(distance):
    """What was seen that many steps ago: at action t, the observation o_{t − distance}."""

    def play(tokens):
        answers = torch.zeros_like(tokens)
        shift = 2 * distance - 1
        answers[:, shift:] = tokens[:, : tokens.shape[1] - shift]
        return answers

    return play


def score(player):
    return mf.evaluate(lambda tokens: one_hot(player(tokens), TASK.vocab_size).float(), TASK, "iid", **FRESH)[
        "accuracy"
    ]


def test_mapwm_beats_every_player_without_a_map():
    objects = range(TASK.empty_id + 1, TASK.vocab_size)
    without_a_map = {
        "always the commonest object": max(score(always(token)) for token in objects),
        "the commonest object so far": score(commonest_object_so_far),
        "the last object": score(last_object),
        "a fixed distance back": max(score(steps_back(distance)) for distance in range(1, TASK.settings.steps)),
    }
    ours = mf.evaluate(trained_mapwm(), TASK, "iid", **FRESH)["accuracy"]
    assert min(without_a_map.values()) > 0.02, f"a player does not play: {without_a_map}"
    assert ours > max(without_a_map.values()) + 0.5, f"{ours:.3f} against {without_a_map}"
