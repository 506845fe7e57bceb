"""The network and the optimizer that a training begins with."""

from __future__ import annotations

import torch

from pnpladmm.denoisers.architecture import Network
from pnpladmm.denoisers.building import kind_of, new_network, read_network
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.muon import Muon
from pnpladmm.workshop.training.plan import Plan


def first_network(plan: Plan) -> Network:
    """A new network, or that of the weight file `plan.start`, which must be of the plan's kind."""
    if plan.start is None:
        return new_network(plan.network, plan.channels, plan.widths, plan.blocks)
    network = read_network(plan.start)
    name = kind_of(type(network))
    if (name, network.channels) != (plan.network, plan.channels):
        raise InputError(
            f"{plan.start}: holds a {name} for {network.channels} channels, not a {plan.network} for {plan.channels}: "
            "give other weights, or another network and number of channels"
        )
    return network


def make_optimizer(plan: Plan, network: Network) -> torch.optim.Optimizer:
    """AdamW or Muon for all weights of the network."""
    if plan.optimizer == "muon":
        return Muon(network.parameters(), plan.learning_rate, weight_decay=plan.weight_decay)
    fused = plan.device.startswith("cuda")
    return torch.optim.AdamW(
        network.parameters(), plan.learning_rate, (0.9, 0.99), weight_decay=plan.weight_decay, fused=fused
    )
