"""The perfect player of `graph`: follows the actions on the map it was given and remembers what lies where.

Where walks begin at any node it does not know which, and follows them from every node at once. That is the best guess,
which need not always be right; where all nodes look alike (Cayley graphs) it is.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mapformers.players.player import Player, register_player
from mapformers.tasks.graph import Graph, GraphSettings

UNSEEN = -1
NEVER = -math.inf
MEMORIES = 2**22  # numbers remembered at a time, over rows, candidates and nodes


class GraphWalker(Player):
    """Sees only tokens. Each candidate is a node where the walk may have begun, with a memory of its own.

    Candidates are weighed by Bayes' rule: how many ways out there were at each step, and how likely it is to find what
    was found.
    """

    task: Graph
    settings: GraphSettings

    def __init__(self, task: Any, settings: Any):
        super().__init__(task, settings)
        world = task.world
        number = {node: index for index, node in enumerate(world.nodes)}
        token = {name: index for index, name in enumerate(task.token_names)}
        self.leads_to = torch.full((len(world.nodes), len(world.actions)), -1)
        for tail, action, head in world.edges:
            self.leads_to[number[tail], token[action]] = number[head]
        self.log_share = -(self.leads_to >= 0).sum(dim=1).double().log()  # of each way out of a node
        self.fixed = torch.full((len(world.nodes),), UNSEEN)
        for node, symbol in world.observations.items():
            self.fixed[number[node]] = token[symbol]
        anywhere = settings.start == "random"
        self.starts = torch.arange(len(world.nodes)) if anywhere else torch.tensor([number[world.start]])

        chance = torch.zeros(task.vocab_size, dtype=torch.float64)  # of what is found where the world leaves it open
        if task.object_ids:
            chance[task.empty_id] = settings.p_empty
            chance[task.object_ids] = (1 - settings.p_empty) / settings.n_objects
        self.log_chance = chance.log()

    def __call__(self, tokens: Tensor) -> Tensor:
        rows = max(1, MEMORIES // (len(self.starts) * len(self.fixed)))
        return self.certain(torch.cat([self._answers(part) for part in tokens.split(rows)]))

    def _answers(self, tokens: Tensor) -> Tensor:
        """(B, L) -> (B, L). Candidates are the second dimension of all below."""
        answers = torch.full_like(tokens, self.task.empty_id or 0)
        node = self.starts.expand(len(tokens), -1)
        memory = self.fixed.repeat(*node.shape, 1)  # (B, C, nodes)
        evidence = torch.zeros(node.shape, dtype=torch.float64)  # log of how likely the walk is from there
        for place, token in enumerate(tokens.T[:, :, None]):
            if place % 2 == 0:
                there = self.leads_to[node, token]
                evidence = torch.where(there < 0, NEVER, evidence + self.log_share[node])
                node = there.clamp(min=0)
                held = memory.gather(2, node.unsqueeze(2)).squeeze(2)
                answers[:, place] = self._best(held, evidence, answers[:, place])
            else:
                surprise = torch.where(held == token, 0.0, NEVER)
                evidence = evidence + torch.where(held == UNSEEN, self.log_chance[token], surprise)
                memory.scatter_(2, node.unsqueeze(2), token.unsqueeze(2).expand(-1, node.shape[1], 1))
        return answers

    def _best(self, held: Tensor, evidence: Tensor, otherwise: Tensor) -> Tensor:
        """What is most likely there, given that it was seen before: (B, C) -> (B,)."""
        likeliest = evidence.max(dim=1, keepdim=True).values.clamp(min=-1e300)  # not −∞, even where nothing is possible
        weight = (evidence - likeliest).exp() * (held != UNSEEN)
        votes = weight.new_zeros(len(held), self.task.vocab_size).scatter_add_(1, held.clamp(min=0), weight)
        return torch.where(votes.sum(dim=1) > 0, votes.argmax(dim=1), otherwise)


register_player("perfect", "graph", GraphWalker)
