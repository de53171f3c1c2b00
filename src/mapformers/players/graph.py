"""The perfect player of `graph`: it knows the graph, follows the actions on it, and remembers what each node holds.

With ``start="random"`` it does not know the start, and follows the walk from every node at once. That gives the best
guess, which can be wrong. On Cayley graphs it is always right, because all their nodes have the same surroundings.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mapformers.players.player import Player, register_player
from mapformers.tasks.graph import Graph, GraphSettings

UNSEEN = -1
NEVER = -math.inf
MAX_MEMORY = 2**22  # numbers remembered at once: rows × candidates × nodes


class GraphWalker(Player):
    """Sees only tokens. Each candidate is a node at which the walk may have started, with a memory of its own.

    Candidates are weighted by Bayes' rule: the probability of each action (one over the number of exits) times the
    probability of each observation.
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
        self.log_action_chance = -(self.leads_to >= 0).sum(dim=1).double().log()  # (nodes,): of each exit of a node
        self.fixed = torch.full((len(world.nodes),), UNSEEN)
        for node, symbol in world.observations.items():
            self.fixed[number[node]] = token[symbol]
        anywhere = settings.start == "random"
        self.starts = torch.arange(len(world.nodes)) if anywhere else torch.tensor([number[world.start]])

        chance = torch.zeros(task.vocab_size, dtype=torch.float64)  # of what a node holds if the world does not fix it
        if task.object_ids:
            chance[task.empty_id] = settings.p_empty
            chance[task.object_ids] = (1 - settings.p_empty) / settings.n_objects
        self.log_content_chance = chance.log()

    def __call__(self, tokens: Tensor) -> Tensor:
        rows = max(1, MAX_MEMORY // (len(self.starts) * len(self.fixed)))
        return self.certain_logits(torch.cat([self._answers(part) for part in tokens.split(rows)]))

    def _answers(self, tokens: Tensor) -> Tensor:
        """(B, L) -> (B, L). The second dimension of all tensors below is that of the C candidates."""
        answers = torch.full_like(tokens, self.task.empty_id or 0)
        node = self.starts.expand(len(tokens), -1)
        memory = self.fixed.repeat(*node.shape, 1)  # (B, C, nodes)
        evidence = torch.zeros(node.shape, dtype=torch.float64)  # log of the probability of the walk from there
        for index, token in enumerate(tokens.T[:, :, None]):
            if index % 2 == 0:
                there = self.leads_to[node, token]
                evidence = torch.where(there < 0, NEVER, evidence + self.log_action_chance[node])
                node = there.clamp(min=0)
                held = memory.gather(2, node.unsqueeze(2)).squeeze(2)
                answers[:, index] = self._best(held, evidence, answers[:, index])
            else:
                as_remembered = torch.where(held == token, 0.0, NEVER)
                evidence = evidence + torch.where(held == UNSEEN, self.log_content_chance[token], as_remembered)
                memory.scatter_(2, node.unsqueeze(2), token.unsqueeze(2).expand(-1, node.shape[1], 1))
        return answers

    def _best(self, held: Tensor, evidence: Tensor, otherwise: Tensor) -> Tensor:
        """The most likely content of the node, given that it was seen before: (B, C) -> (B,)."""
        strongest = evidence.max(dim=1, keepdim=True).values.clamp(min=-1e300)  # finite even if nothing is possible
        weight = (evidence - strongest).exp() * (held != UNSEEN)
        votes = weight.new_zeros(len(held), self.task.vocab_size).scatter_add_(1, held.clamp(min=0), weight)
        return torch.where(votes.sum(dim=1) > 0, votes.argmax(dim=1), otherwise)


register_player("perfect", "graph", GraphWalker)
