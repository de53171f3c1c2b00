"""Angular velocities: what was learned of them, and how far the walks go on the slowest and fastest (paper, A.8)."""

from typing import Any

import torch

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject, plain
from mapformers.modules.movement import find_movements

SEQUENCES = 64


def velocities(subject: Subject) -> Outcome:
    """ω as learned against its start, and distances covered against one turn of the slowest and the fastest block."""
    title = "Angular velocities ω: learned against start, and the distances walked"
    if subject.layer is None:
        return Missing("velocities", title, f"{subject.kind} has no angular velocities that are learned.")
    paths = [_of_layer(model, subject.layer) for model in (subject.untrained, subject.model)]
    start, learned = (path.omega.detach().double().flatten() for path in paths)
    order = start.argsort(descending=True, stable=True)
    numbers: dict[str, Any] = {
        "layer": subject.layer,
        "omega_start": plain(start[order], 5),
        "omega_learned": plain(learned[order], 5),
        "largest_change": round(float(((learned - start).abs() / start.abs().clamp(min=1e-9)).max()), 4),
    }
    data: dict[str, Any] = {"start": start[order].numpy(), "learned": learned[order].numpy()}
    reading = "Left: ω of every rotation block at the start and after training, sorted."
    if "coordinate" in subject.alone[subject.layer]:
        more, drawn = _covered(subject, paths[1])
        numbers |= more
        data |= drawn
        reading += (
            " Middle: the longest distance that sequences cover on each block, in its turns; A.8 wants the slowest to "
            "close about one there. Right: one sequence on two blocks."
        )
    else:
        reading += " Its rotations do not commute, so there is no distance along a block to compare them with."
    return Finding("velocities", title, reading, numbers, data)


def _of_layer(model: Any, layer: int) -> Any:
    """The movement of the layer that is looked at."""
    return find_movements(model.layers[layer])[0]


def _covered(subject: Subject, path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Phases along sequences, unwrapped, of the blocks in which actions turn slowest and fastest."""
    assert subject.layer is not None
    batch = subject.sample("iid", SEQUENCES, "velocities")
    coordinate = subject.model.observe(batch.tokens)[subject.layer]["coordinate"].double()  # (B, L, H, r)
    rate = (path.w_out * path.omega.unsqueeze(1)).detach().double()  # (H, r, n_b)
    phases = torch.einsum("blhr,hrn->blhn", coordinate, rate).flatten(2) / (2 * torch.pi)  # in turns
    turned = torch.einsum("vhr,hrn->vhn", subject.alone[subject.layer]["delta_in"][:, 0].double(), rate)
    speeds = turned.flatten(1)[subject.actions or slice(None)].abs().amax(dim=0)
    slow, fast = int(speeds.argmin()), int(speeds.argmax())
    reached = phases.abs().amax(dim=1)  # (B, blocks)
    numbers = {
        "turns_of_slowest": round(float(reached[:, slow].max()), 4),
        "turns_of_fastest": round(float(reached[:, fast].max()), 4),
        "turn_per_action_slowest": round(float(speeds[slow]) / 6.283185307, 6),
        "turn_per_action_fastest": round(float(speeds[fast]) / 6.283185307, 6),
    }
    data = {
        "turns": reached.amax(dim=0)[speeds.argsort(descending=True)].numpy(),
        "circle": {"slowest": phases[0, :, slow].numpy(), "fastest": phases[0, :, fast].numpy()},
    }
    return numbers, data
