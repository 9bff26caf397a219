"""The picture of an environment as Mermaid text: roles, nodes, and the ways of requests and KV."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise

from ..planning.shapes import Layout
from .picture import DrawnNode, Entrance, Scene, scenes_of

MOST_LINKS = 300
"""Mermaid refuses a chart of more than 500 links or 50,000 characters; models beyond are counted instead of drawn."""
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:=_-+/()")

Homes = dict[tuple[str, bool, str], dict[str, list[str]]]
"""Boxes by pair, whether it waits, and role, then by the leader of the engine whose pods are in them."""


def topology_of(layout: Layout) -> str:
    """A Mermaid flowchart: a box a pool, in it a box a node with its pods counted by role; nodes that hold the same are one box."""
    boxes, links, left_out, pools, models = ["flowchart LR", "  client([client])"], list[str](), 0, 0, 0
    for scene in scenes_of(layout):
        drawn, homes = _boxes(scene, pools)
        ways = list(dict.fromkeys(way for i, entrance in enumerate(scene.entrances, models) for way in _ways(entrance, f"r{i}", homes)))
        if len(links) + len(ways) > MOST_LINKS:
            left_out += sum(not entrance.waiting for entrance in scene.entrances)
            continue
        boxes, links, pools, models = boxes + drawn, links + ways, pools + len(scene.pools), models + len(scene.entrances)
    if left_out:
        boxes.append(f'  more["{left_out} more models"]')
    return "\n".join(boxes + links) + "\n"


def mermaid_label(text: str) -> str:
    """A text inside quotes: every sign that means something to Mermaid, HTML or Markdown becomes Mermaid's entity of its number."""
    return "".join(c if c in _SAFE else f"#{ord(c)};" for c in text)


def _boxes(scene: Scene, first: int) -> tuple[list[str], Homes]:
    lines: list[str] = []
    homes: Homes = {}
    for i, pool in enumerate(scene.pools, first):
        lines.append(f'  subgraph pool{i}["{mermaid_label(pool.name)}"]')
        for j, node in enumerate(pool.nodes):
            lines.append(f'    p{i}n{j}["{_inside(node)}"]')
            for pod in node.pods:
                homes.setdefault((pod.pair, pod.waiting, pod.role), {}).setdefault(pod.leader, []).append(f"p{i}n{j}")
        lines.append("  end")
    return lines, homes


def _inside(node: DrawnNode) -> str:
    held = Counter(p.pair if p.role == "server" else f"{p.pair}-{p.role}" for p in node.pods)
    each = [f"{node.alike + 1} nodes, each:"] if node.alike else []
    pods = [mermaid_label(f"{n} x {name}") for name, n in sorted(held.items())]
    return "<br/>".join([*each, *pods, f"idle: {node.idle_gpus} GPU, {node.idle_efa} EFA"])


def _ways(entrance: Entrance, router: str, homes: Homes) -> list[str]:
    """Links of one pair, some more than once: requests go to the leader of each engine, and its other pods are behind it; to a candidate, none."""
    engines = {role: list(homes.get((entrance.pair, entrance.waiting, role), {}).values()) for role in ("prefill", "decode", "server")}
    first = {role: dict.fromkeys(boxes[0] for boxes in found) for role, found in engines.items()}
    name, kv = mermaid_label(entrance.pair), "KV over EFA" if entrance.efa else "KV over TCP"
    lines = [f'  client --> {router}["{entrance.router}<br/>{name}"]'] if entrance.router else []
    way = f"  {router} -->" if entrance.router else f'  client -->|"{name}"|'
    lines += [f"{way} {box}" for box in [*first["server"], *first["decode"]] if not entrance.waiting]
    lines += [f"  {a} <-->|NCCL over EFA| {b}" for boxes in chain(*engines.values()) for a, b in pairwise(boxes)]
    for decode in first["decode"]:
        lines += [line for prefill in first["prefill"] for line in (f"  {decode} -->|prompt| {prefill}", f"  {prefill} ==>|{kv}| {decode}")]
    return lines
