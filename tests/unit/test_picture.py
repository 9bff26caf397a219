"""The picture of an environment with a candidate: what gets requests and what runs beside it."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from disagg_serving.planning.shapes import Layout
from disagg_serving.recording.picture import scenes_of
from disagg_serving.recording.topology import topology_of
from factories import aggregated, environment, layout, model, role

OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
SERVER = {"instanceType": "p5.48xlarge", "tensorParallel": 8}
WHOLE = {name: role(replicas=2, tensorParallel=8) for name in ("prefill", "decode")}


def boxes_of(text: str) -> dict[str, str]:
    """What stands in each box of a node."""
    return dict(re.findall(r'^    (p\d+n\d+)\["(.*)"\]$', text, re.MULTILINE))


def links_of(text: str) -> list[tuple[str, str]]:
    """Both ends of each link, without direction or label."""
    ends = re.findall(r"^  (\w+)(?:\[.*\])? (?:-->|<-->|==>)(?:\|[^|]*\|)? (\w+)", text, re.MULTILINE)
    return [(a, b) for a, b in ends if a != "client"]


def drawn(of: Layout) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Boxes and links of a layout's picture."""
    text = topology_of(of)
    return boxes_of(text), links_of(text)


@pytest.mark.parametrize(
    "candidate",
    [
        OTHER,
        {**OTHER, "prefill": role(instanceType="p5en.48xlarge"), "decode": role(instanceType="p5en.48xlarge")},
        {"generation": "b", "server": SERVER},
    ],
    ids=["on the same nodes", "on nodes of its own", "aggregated"],
)
def test_no_way_leads_from_one_pair_to_another(candidate: dict[str, Any]) -> None:
    """The router reaches the pair that serves and never a candidate; prompts and KV stay within a pair, and each pod is drawn."""
    of = layout(environment(model(**WHOLE, candidate=candidate)))
    boxes, links = drawn(of)
    waiting = {box for box, held in boxes.items() if re.search(r"\d x m-b\b", held)}
    assert waiting
    assert len(waiting) < len(boxes)
    routed = {b for a, b in links if a.startswith("r")}
    assert routed == {box for box, held in boxes.items() if "m-decode" in held}
    assert not any((a in waiting) != (b in waiting) for a, b in links)
    assert sum(len(pool.nodes) for scene in scenes_of(of) for pool in scene.pools) == len(boxes)
    assert {pod.name for s in scenes_of(of) for p in s.pools for n in p.nodes for pod in n.pods} == {
        name for g in of.groups for names in g.pods() for name in names
    }


def test_a_candidate_can_be_tried_within_itself() -> None:
    """Its decode is joined with its prefill as those that serve are; an activated one is the model, drawn by the model's name."""
    boxes, links = drawn(layout(environment(model(**WHOLE, candidate=OTHER))))
    ends = {name: [b for b, held in boxes.items() if f" x {name}<" in held] for name in ("m-b-prefill", "m-b-decode")}
    pairs = set(product(ends["m-b-decode"], ends["m-b-prefill"]))
    assert pairs
    assert pairs <= set(links)
    active = layout(environment(model(**WHOLE, candidate={**OTHER, "activate": True})))
    boxes, links = drawn(active)
    assert not any("m-b" in held for held in boxes.values())
    assert {a for a, _ in links if a.startswith("r")}
    assert not any(e.waiting for s in scenes_of(active) for e in s.entrances)


def test_a_candidate_of_an_aggregated_model_is_on_its_own() -> None:
    """Nothing leads to it, and the model's own way stays."""
    boxes, links = drawn(layout(environment(aggregated(server=role(tensorParallel=8), candidate=OTHER))))
    (router,) = {a for a, _ in links}
    assert router.startswith("r")
    reached = {boxes[b] for _, b in links}
    assert not any("-b<" in held for held in reached)
    assert any("-b<" in held for held in boxes.values())
