"""Rules about nodes that somebody else made: what NodePools hold by construction has to be said for them."""

from __future__ import annotations

from collections.abc import Iterator

from ... import labels
from ...errors import Level
from ...phrases import say
from ...planning.shapes import Served, group_size
from ...spec import RoleSpec
from ..documents import EKS, TAINTS
from ..registry import Fault, Stage, Subject, rule


@rule("existing-nodes", Level.WARNING, Stage.FORM, f"{EKS}node-efa.html and {TAINTS}")
def existing_nodes(s: Subject) -> Iterator[Fault]:
    """Nodes that exist are of one zone, which EFA does not leave, and their pods tolerate the taint of GPU nodes."""
    if s.spec.makes_pools:
        return
    for served in s.served:
        yield from _zones(served)
    for _, _, role, path in s.roles():
        if role.tolerations and not any(_tolerates_gpus(role, i) for i in range(len(role.tolerations))):
            message = f"take the place of the default, which tolerates {labels.GPU}, the usual taint of GPU nodes"
            fix = say("add a toleration with that key, unless the nodes have no such taint")
            yield Fault(f"{path}.tolerations", message, None, f"one with key {labels.GPU}", fix)


def _zones(served: Served) -> Iterator[Fault]:
    """Pods that talk over EFA: those of prefill and decode, and those of one engine."""
    roles = served.spec.roles
    spread = [name for name, role in roles.items() if served.spec.disaggregated or group_size(role, served.instances[name]) > 1]
    zones = {roles[name].node_selector.get(labels.ZONE) for name in spread}
    if not spread or (len(zones) == 1 and None not in zones):
        return
    path = f"{served.path}.{spread[0]}.nodeSelector"
    known = ", ".join(sorted(zone for zone in zones if zone))
    message = f"names {'several zones' if len(zones - {None}) > 1 else 'no zone'} for pods that talk over EFA, which does not cross zones"
    yield Fault(path, message, known or None, f"one {labels.ZONE} in all roles", say("add the zone to the {nodeSelector} of each role"))


def _tolerates_gpus(role: RoleSpec, i: int) -> bool:
    return role.tolerations[i].key == labels.GPU
