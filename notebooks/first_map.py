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
# # A first map
#
# A model reads what a walker writes down, an action and then what is found where it leads, and learns a map that
# nobody has shown to it. The training below takes about a minute. All it needs is `pip install mapformers`.

# %%
import matplotlib.pyplot as plt
import torch

import mapformers as mf

# %% [markdown]
# ## The world
#
# A walk on a grid of 8 × 8 cells. Half of the cells are empty (`·`), the others hold one of sixteen objects, and all
# is drawn anew for every walk. The walker starts anywhere and cannot pass the walls.

# %%
world = {"dims": 2, "steps": 48, "grid": 8}
task = mf.build_task("navigation", **world)
print(task.show("iid", torch.Generator().manual_seed(1)))

# %% [markdown]
# What comes next can be known only on coming back to a cell. So that is what is scored. Players, which follow a rule
# and learn nothing, say what a score is worth: `perfect` keeps a map, the others have none.

# %%
for name in ("perfect", "last-value", "best-lag"):
    player = mf.players.build(name, task, "iid")
    print(f"{name:>10}: {mf.evaluate(player, task, 'iid', n_sequences=64)['accuracy']:.2f}")

# %% [markdown]
# ## Two models
#
# They differ in one thing. RoPE rotates queries and keys by the index of a token. MapWM rotates them by the place to
# which the tokens have led: each token has a movement Δ_in, and movements are added up.

# %%
budget = {"sequences": 16_000, "batch_size": 32, "lr": 3e-3, "warmup_steps": 50, "zero_mean_steps": 100}
runs = {
    name: mf.train("navigation", name, scale="smoke", out=f"runs/first-map-{name}", d_model=64, **world, **budget)
    for name in ("rope", "mapwm")
}

# %%
for name, run in runs.items():
    scores = {split: round(run.result["splits"][split]["accuracy"]["value"], 2) for split in task.splits}
    print(f"{name:>6}: {scores}")

# %% [markdown]
# The splits that begin with `ood` are worlds that no model was trained on: smaller and fuller, larger and emptier.
#
# ## The map
#
# How each token moves on the map of MapWM. Actions are directions; what is found somewhere should not move at all.

# %%
movements = mf.analysis.token_movements(runs["mapwm"].model)
figure, axes = plt.subplots(figsize=(4, 4))
for token, (x, y) in enumerate(movements.tolist()):
    acts = token in task.action_ids
    axes.plot([0, x], [0, y], color="tab:blue" if acts else "tab:orange", marker="o", markevery=[1])
    if acts:
        axes.annotate(task.token_names[token], (x, y), fontsize=14)
axes.set(aspect="equal", title="Δ_in of every token", xlabel="first dimension", ylabel="second dimension")
plt.show()

# %% [markdown]
# A walk that the model has never seen, where it really went and where the model believes it is. The map is learned up
# to a linear change of axes, which is undone here.

# %%
batch = task.sample("ood-dense", 1, torch.Generator().manual_seed(0))
truth = batch.info["displacement"][0]
path, explained = mf.analysis.align(mf.analysis.walked_path(runs["mapwm"].model, batch.tokens[0])[0::2], truth)
figure, panels = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
for axes, walk, title in zip(
    panels, (truth, path), ("where it went", f"what the model believes, R² = {explained:.3f}")
):
    axes.plot(*walk.T, marker="o")
    axes.set(aspect="equal", title=title)
plt.show()

# %% [markdown]
# With more steps of training (`mapformers demo`: a grid of 64 × 64, some minutes) the map is nearly exact. The next
# notebook is about a world of your own.
