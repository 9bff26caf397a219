"""The picture of an environment as Mermaid text: roles, nodes, and the ways of requests and KV."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from ..planning.placement import place
from ..planning.shapes import Group, Layout


def topology_of(layout: Layout) -> str:
    """A Mermaid flowchart: a box a model, in it a box a node with its pods counted by role."""
    lines = ["flowchart LR", "  client([client])"]
    roles = {pod: g for g in layout.groups for names in g.pods() for pod in names}
    for i, (pool, _, nodes) in enumerate(place(layout)):
        lines.append(f'  subgraph pool{i}["{pool}"]')
        for j, node in enumerate(nodes):
            held = Counter(roles[p].name for p in node.pods)
            text = "<br/>".join(f"{n} x {name}" for name, n in sorted(held.items()))
            lines.append(f'    p{i}n{j}["{text}<br/>idle: {node.idle_gpus} GPU, {node.idle_efa} EFA"]')
        lines.append("  end")
    homes = _homes(layout)
    for served in layout.served:
        by_role = {g.role: g for g in layout.groups_of(served)}
        if "server" in by_role:
            lines += [f"  client -->|{served.spec.name}| {home}" for home in homes.get(by_role["server"].name, [])[:1]]
            lines += _links(homes.get(by_role["server"].name, []), by_role["server"])
            continue
        lines += [f"  client -->|{served.spec.name}| {home}" for home in homes.get(by_role["decode"].name, [])]
        for decode in homes.get(by_role["decode"].name, []):
            for prefill in homes.get(by_role["prefill"].name, []):
                lines += [f"  {decode} -->|prompt| {prefill}", f"  {prefill} ==>|KV over EFA| {decode}"]
    return "\n".join(lines) + "\n"


def _homes(layout: Layout) -> dict[str, list[str]]:
    owners = {pod: g.name for g in layout.groups for names in g.pods() for pod in names}
    homes: dict[str, list[str]] = {}
    for i, (_, _, nodes) in enumerate(place(layout)):
        for j, node in enumerate(nodes):
            for name in sorted({owners[p] for p in node.pods}):
                homes.setdefault(name, []).append(f"p{i}n{j}")
    return homes


def _links(homes: list[str], group: Group) -> list[str]:
    if group.size == 1:
        return []
    return [f"  {a} <-->|NCCL over EFA| {b}" for a, b in pairwise(homes)]
