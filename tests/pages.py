"""Plans as HTML pages: of every shipped stack, and of cases that a page has to cope with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from disagg_serving.document.difference import Change, CheckChanges, Difference, FigureChange, Op, PathChange
from disagg_serving.document.resource import Resource
from disagg_serving.errors import Finding, Level
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import Plan, assemble
from disagg_serving.report.html import render_html
from factories import STACKS, aggregated, check, environment, existing_cluster, model, role
from recording import PROJECT, environment_graph, stack_graph

RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 4}
URN = "urn:pulumi:prod::disagg-serving::"

CHANGES = [
    Change(
        f"{URN}eks:index:Cluster::prod",
        "eks:index:Cluster",
        "prod",
        Op.REPLACE,
        [PathChange("vpcId", "vpc-1", "vpc-2", forces_replacement=True)],
        "the cluster is replaced, and everything that runs on it goes",
        Level.ERROR,
    ),
    Change(
        f"{URN}kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet::prod/llama-decode",
        "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet",
        "prod/llama-decode",
        Op.UPDATE,
        [PathChange("spec.replicas", 4, 2), PathChange("spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].image", "a:v1", "a:v2")],
        "pods of two revisions serve at the same time",
        Level.WARNING,
    ),
    Change(f"{URN}aws:ec2/subnet:Subnet::prod-a", "aws:ec2/subnet:Subnet", "prod-a", Op.UPDATE, [PathChange("tags.a", None, "x")]),
    Change(f"{URN}aws:ec2/subnet:Subnet::prod-b", "aws:ec2/subnet:Subnet", "prod-b", Op.DELETE),
]
"""One change of each weight and most operations."""
DIFFERENCE = Difference(
    "origin/main",
    "0123456789abcdef",
    notes=["the base has other requirements"],
    unchanged=61,
    capacity=[FigureChange("llama-70b decode", "KV tokens", 200_000, 188_928, "an engine", Level.WARNING)],
    placement=[FigureChange("decode-p5-48xlarge", "nodes", 1, 2, "p5.48xlarge")],
    cost=[FigureChange("total", "price", 40_000.5, 80_513.52, "USD a month")],
    checks=CheckChanges([], [Finding("quota", Level.INFO, "models", "may start instances")], ()),
)

HOSTILE = [
    "@octocat",
    "a\n::error file=a::b\x1b[2J\x1b]0;c\x07",
    "see @org/team and user@example.com",
    "#1 and org/repo#2 and GH-3",
    "https://example.com/x www.example.com mailto:a@example.com",
    "[a](https://example.com) ![b](https://example.com/p.png) <https://example.com>",
    "<img src=x onerror=alert(1)><script>alert(1)</script><!-- x",
    "</details></summary><h1>all checks passed</h1>",
    "**bold** _em_ ~~gone~~ `code` $x^2$ :tada:",
    "a | b \\| c \\\\| d",
    "`` ` ``` | <b>",
    "\\",
    "``|`@octocat`",
    "# title",
    "1. one",
    "- [x] done",
    "a\n\n# title\n```\n@octocat",
    "\u202egnirts\u0007\x1b[31m",
    "&lt;b&gt; &#64;octocat &commat;octocat",
    "&#96;&#124;",
    "x" * 5000,
]
"""Texts that mean something to Markdown, HTML, GitHub, tables, SARIF or a terminal."""


def plan_of(data: Any, stack: str = "test") -> Plan:
    """The plan of an environment, with its recorded program where it can be laid out."""
    found = check(data)
    return assemble("disagg-serving", stack, environment_graph(data) if found.layout else Graph(), found.findings, found.layout)


def compared_plan() -> Plan:
    """A plan with a change of each weight, most operations, and figures that differ."""
    plan = plan_of(environment(model(name="llama-70b", prefill=role(tensorParallel=4))), "prod")
    return replace(plan, changes=CHANGES, difference=DIFFERENCE)


def many_models() -> dict[str, Any]:
    """Models that share pools, one with a very long name, one over several nodes; four pools of three types."""
    return environment(
        model(name="llama", prefill=role(tensorParallel=4), decode=role(instanceType="p5en.48xlarge")),
        aggregated(name="small", server=role()),
        model(name="a" * 42, prefill=role(tensorParallel=4), decode=role(instanceType="p5en.48xlarge", replicas=40)),
        aggregated(name="glm", model="glm-5-fp8", server=role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity=RESERVED)),
    )


def own_nodes() -> dict[str, Any]:
    """An existing cluster on which no NodePools are made."""
    pinned = {"nodeSelector": {"pool": "gpu"}, "tolerations": []}
    return existing_cluster(model(prefill=role(**pinned), decode=role(**pinned)), autoMode=False, nodeRole=None, securityGroupIds=None)


def growing() -> dict[str, Any]:
    """A model with scaled roles and a candidate beside it."""
    scaled = role(tensorParallel=4, autoscaling={"minReplicaCount": 2, "maxReplicaCount": 8})
    address = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}
    candidate = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
    return environment(model(prefill=scaled, decode=scaled, candidate=candidate), autoscaling=address)


@cache
def shipped(stack: str) -> Plan:
    """The plan of a shipped stack."""
    found = check({"name": stack, **PROJECT.stack_file(stack).environment})
    return assemble("disagg-serving", stack, stack_graph(stack), found.findings, found.layout)


MADE: dict[str, Callable[[], list[Plan]]] = {
    "difference": lambda: [compared_plan()],
    "growing": lambda: [plan_of(growing())],
    "many": lambda: [plan_of(many_models())],
    "own-nodes": lambda: [plan_of(own_nodes())],
    "refused": lambda: [plan_of(environment(model(decode=role(pipelineParallel=2))))],
    "several": lambda: [shipped("dev"), shipped("glm5")],
}
PAGES = (*STACKS, *MADE)
"""The pages by name."""


@cache
def plans(page: str) -> list[Plan]:
    """What a page shows."""
    return [shipped(page)] if page in STACKS else MADE[page]()


def write_pages(folder: Path) -> dict[str, Path]:
    """The pages as files, by name."""
    found = {}
    for name in PAGES:
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_html(plans(name)), encoding="utf-8")
    return found


@cache
def hostile_plan() -> Plan:
    """A plan that holds hostile texts wherever one can stand."""
    findings = [Finding("schema", level, t, t, t, t, t) for level in Level for t in HOSTILE]
    resources = {str(i): Resource(f"urn:{t}", f"kubernetes:core/v1:{t}", t, None, None, False, True, {"a": t}, (), {}) for i, t in enumerate(HOSTILE)}
    changes = [Change(t, t, t, op, [PathChange(t, t, t, True)], t, level, t) for t in HOSTILE for op in Op for level in (Level.ERROR, Level.INFO)][
        :60
    ]
    deltas = [FigureChange(t, t, t, t, t, Level.WARNING) for t in HOSTILE]
    difference = Difference("main`@octocat", "abc", True, HOSTILE[:3], 3, deltas, deltas, deltas, CheckChanges(findings, findings, ()))
    data = existing_cluster(aggregated(server=role(nodeSelector={"pool": "a"}, tolerations=[])), autoMode=False, nodeRole=None)
    plan = assemble("disagg-serving", "a`@octocat <b>|", Graph(resources), findings, check(data).layout)
    return replace(plan, changes=changes, difference=difference)
