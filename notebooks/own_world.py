# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own world
#
# Any graph whose edges are labelled by actions is a world: a floor plan, an underground, the states of a machine. A
# model walks on it and learns its map. All it needs is `pip install mapformers`.

# %%
import torch

import mapformers as mf
from mapformers.tasks.graph_world import GraphWorld

# %% [markdown]
# ## Describe it
#
# Nodes, actions, and where each action leads. Here a flat with six rooms; the bath always has a mirror in it.

# %%
flat = GraphWorld.from_dict(
    {
        "name": "flat",
        "nodes": ["hall", "kitchen", "bath", "balcony", "bedroom", "study"],
        "actions": ["north", "south", "east", "west"],
        "edges": [
            ["hall", "north", "kitchen"],
            ["kitchen", "south", "hall"],
            ["hall", "east", "bath"],
            ["bath", "west", "hall"],
            ["kitchen", "north", "balcony"],
            ["balcony", "south", "kitchen"],
            ["kitchen", "east", "bedroom"],
            ["bedroom", "west", "kitchen"],
            ["bedroom", "south", "bath"],
            ["bath", "north", "bedroom"],
            ["hall", "west", "study"],
            ["study", "east", "hall"],
        ],
        "start": "hall",
        "observations": {"bath": "mirror"},
    }
)
flat.save("flat.json")  # a file for the command line: mapformers train --task graph --world flat.json --model mapwm

# %% [markdown]
# A mistake is named in one sentence:

# %%
try:
    GraphWorld.from_dict({"name": "odd", "nodes": ["a"], "actions": ["on"], "edges": [["a", "on", "b"]]})
except mf.UserError as error:
    print(error)

# %% [markdown]
# ## Walk on it
#
# What lies in the rooms is drawn anew for every walk, apart from the mirror. So a model that is right on coming back
# has kept track of where it is.

# %%
task = mf.build_task("graph", world=flat, steps=32)
print(task.show("iid", torch.Generator().manual_seed(0)))

# %% [markdown]
# ## Train and measure
#
# A few seconds show that it runs; with `scale="cpu"` and no further settings it learns the map, in minutes.

# %%
small = {"sequences": 3200, "batch_size": 32, "lr": 3e-3, "warmup_steps": 20, "zero_mean_steps": 50}
run = mf.train("graph", "mapwm", scale="smoke", out="runs/flat", world=flat, steps=32, d_model=64, **small)

# %%
for split in task.splits:
    player = mf.players.build("perfect", task, split)
    scores = [mf.evaluate(model, task, split, n_sequences=64)["accuracy"] for model in (run.model, player)]
    print(f"{split:>10}: MapWM {scores[0]:.2f}, perfect player {scores[1]:.2f}")

# %% [markdown]
# ## Read the map
#
# How each action moves. In a flat with right angles, north and south should become opposite, and so should east and
# west.

# %%
movements = mf.analysis.token_movements(run.model)
for token in task.action_ids:
    print(f"{task.token_names[token]:>6}", [round(number, 2) for number in movements[token].tolist()])

# %% [markdown]
# ## A model of your own
#
# Whatever maps tokens to logits can be measured here: a model of `transformers`, a plain function, a layer of yours.

# %%
from torch import nn


class Guess(nn.Module):
    """It knows the vocabulary and nothing else."""

    def forward(self, tokens):
        return torch.zeros(*tokens.shape, task.vocab_size)


print(round(mf.evaluate(Guess(), task, "iid", n_sequences=64)["accuracy"], 2))
