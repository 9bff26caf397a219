"""Figures inside pages that people write: costs, times, versions, AWS resources, between two comments. Written by scripts/generate.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

from disagg_serving import pins
from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.loader import PACKAGE_DIR
from disagg_serving.forecast.capacities import capacities
from disagg_serving.forecast.cost import FIXED, cost_of
from disagg_serving.imports.forms import Source, read_sources
from disagg_serving.imports.stack import Imported, Wish, assemble
from disagg_serving.imports.text import account, stack_text
from disagg_serving.planning.placement import place
from disagg_serving.planning.startup import (
    BASE_SECONDS,
    DOWNLOAD_GB_PER_SECOND,
    STREAM_GB_PER_SECOND,
    load_seconds,
    mirror_budget_seconds,
    startup_budget_seconds,
)
from disagg_serving.yaml_io import read_yaml

from scripts import modules, rights
from scripts.pictures import layout_of, recorded
from scripts.reference import cited, table

ROOT = Path(__file__).resolve().parent.parent
STACKS = ("dev", "prod", "glm5")
SAMPLE = ROOT / "tests/data/imports/llm-d-modelservice.yaml"
"""What docs/how-to/import.md shows."""
BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def costs() -> list[str]:
    """What the stacks cost while they run, by the dated list prices of the catalogue."""
    rows = []
    for stack in STACKS:
        layout = layout_of(stack)
        cost = cost_of(layout)
        counted: Counter[str] = Counter()
        for _, pool, found in place(layout):
            counted.update({pool.instance.id: len(found)} if pool else {})
        nodes = ", ".join(f"{number} x {instance}" for instance, number in counted.items())
        unknown = ", ".join(line.item for line in cost.lines if line.per_hour is None) or "nothing"
        rows.append((f"`{stack}`", nodes, f"{cost.per_hour:,.2f}", f"{24 * cost.per_hour:,.0f}", str(cost.as_of), unknown))
    return table(("stack", "GPU nodes", "USD an hour", "USD a day", "oldest price", "not known, so not in it"), rows)


def forms_of_glm5() -> list[str]:
    """The playbook's 744B model in its form and in ours: what the nodes cost, and what one engine holds."""
    rows = []
    for stack in ("glm5-pp", "glm5"):
        layout = layout_of(stack)
        (group,), (engine,) = layout.groups, capacities(layout)
        (nodes,) = [line for line in cost_of(layout).lines if line.name not in FIXED]
        kv, longest, stages = engine.per_gpu.kv_gib, engine.max_concurrency, group.spec.pipeline_parallel
        form = f"TP{group.spec.tensor_parallel}, {stages} stages" if stages > 1 else f"TP{group.spec.tensor_parallel}"
        rows.append((
            f"`{stack}`", f"{nodes.quantity} x {group.instance.id}", form, f"{nodes.per_hour:,.2f}", f"{kv.mid:.1f} ({kv.low:.1f}-{kv.high:.1f})",
            f"{engine.kv_tokens.mid:,.0f}", f"{longest.mid:.1f} ({longest.low:.1f}-{longest.high:.1f})",
        ))  # fmt: skip
    return table(("stack", "nodes", "engine", "USD an hour of the nodes", "KV cache, GiB a GPU", "tokens", "requests of 131,072 tokens"), rows)


def downloads() -> list[str]:
    """What passes the NAT gateway at a start, which no line of a plan has: every pod that downloads fetches the checkpoint for itself."""
    rows = []
    for stack in STACKS:
        layout = layout_of(stack)
        (served,) = layout.served
        size = served.facts.checkpoint_gb
        pods = sum(g.size * g.replicas for g in layout.groups)
        if served.weights_uri:
            way, passes = "once, by the Job that copies to S3", size
        else:
            way, passes = f"by each of {pods} pods" if pods > 1 else "by one pod", size * pods
        rows.append((f"`{stack}`", f"{size:g}", way, f"{passes:,.0f}", f"{passes * _per_gb():,.2f}"))
    head = ("stack", "checkpoint GB", "fetched", "GB through NAT", f"USD, at {_per_gb():g} for each GB")
    return table(head, rows)


def _per_gb() -> float:
    return float(read_yaml(PACKAGE_DIR / "prices.yaml")["natGateway"]["usdPerGB"])


TUTORIAL_HOURS = 2
"""How long the tutorial leaves its GPU node running."""


def tutorial_cost() -> list[str]:
    """What one pass through the tutorial costs."""
    layout = layout_of("dev")
    cost = cost_of(layout)
    (served,) = layout.served
    (node,) = [line.per_hour or 0 for line in cost.lines if line.name not in FIXED]
    running, fetched = TUTORIAL_HOURS * cost.per_hour, served.facts.checkpoint_gb * _per_gb()
    told = read_yaml(PACKAGE_DIR / "prices.yaml")["autoModeFee"]
    share = told["othersSay"] * (1 - told["reduction"])
    fee = TUTORIAL_HOURS * node * share
    rows = [
        (f"`dev` for {TUTORIAL_HOURS} hours, GPU node included from the first minute", f"{running:.2f}"),
        (f"{served.facts.checkpoint_gb:g} GB of weights through the NAT gateway, once", f"{fetched:.2f}"),
        (f"management of the node, if it is {share:.1%}: what others say, less AWS's reduction of {told['asOf']}", f"{fee:.2f}"),
        ("**together**", f"**{sum(round(part, 2) for part in (running, fetched, fee)):.2f}**"),
    ]
    return table(("the tutorial", "USD"), rows)


def steps() -> list[str]:
    """How long each step of the tutorial takes."""
    (served,) = layout_of("dev").served
    rows = [
        ("quota for P instances", "hours to days", "AWS answers; new accounts have 0"),
        ("state, key, deployer", "10 minutes", "by hand"),
        ("plan", "3 seconds; the first time with the [installation](../README.md)", "measured, `make preview`"),
        ("network, cluster, charts", "20 to 30 minutes", "reported for EKS by [others' installers](#where-the-times-come-from), not measured here"),
        (
            "node and model",
            f"some minutes for the node, then up to {startup_budget_seconds(served) // 60} until the model answers",
            "the start budget of the probes, [below](#4-wait)",
        ),
        ("destroy", "up to an hour", "pools wait 45 minutes at most for their nodes"),
    ]
    return table(("step", "takes", "source"), rows)


def start_times() -> list[str]:
    """How long engines may take to start, as the probes allow it, and how long the copy to S3 before that."""
    rows = []
    for stack in STACKS:
        (served,) = layout_of(stack).served
        way = "streamed from S3" if served.weights_uri else "downloaded"
        load, budget = load_seconds(served) / 60, startup_budget_seconds(served) // 60
        copy = f"up to {mirror_budget_seconds(served) // 60}" if served.spec.weights.mirror else ""
        rows.append((f"`{stack}`", served.facts.id, f"{served.facts.checkpoint_gb:g}", way, copy, f"{load:.0f}", budget))
    head = (
        "stack", "model", "checkpoint GB", "weights are", "minutes to copy to S3, once", "minutes to load, slow end",
        "minutes until a start counts as failed",
    )  # fmt: skip
    speeds = f"{DOWNLOAD_GB_PER_SECOND} GB/s downloaded, {STREAM_GB_PER_SECOND} GB/s streamed; the budget is 1.5 x ({BASE_SECONDS} s + loading)"
    first = "Before the copy to S3 is done no GPU node is asked for."
    return [*table(head, rows), "", f"Slow ends: {speeds} (`planning/startup.py`, with sources). {first}"]


def aws_resources() -> list[str]:
    """What the deployer's identity makes in AWS, from the recorded programs and what pulumi-eks makes inside its component."""
    counted = {stack: rights.made(recorded(stack)) for stack in STACKS}
    kinds = sorted({kind for found in counted.values() for kind in found})
    rows = [(f"`{kind.rpartition(':')[0]}`", *(counted[stack][kind] or "" for stack in STACKS)) for kind in kinds]
    return table(("resource of pulumi-aws", *(f"`{stack}`" for stack in STACKS)), rows)


def versions() -> list[str]:
    """Every version that is installed, with its source and the day it was checked."""
    known = load_catalog()
    engine, router = known.engines[pins.DEFAULT_ENGINE], known.routers[pins.DEFAULT_ROUTER]
    listed: list[tuple[str, str, str, str | date]] = [
        (part, pin.version, pin.source, pin.checked)
        for part, pin in (
            ("Kubernetes", pins.KUBERNETES), ("LeaderWorkerSet chart", pins.LWS_CHART), ("KEDA chart, if a role is scaled", pins.KEDA_CHART),
            ("DCGM exporter chart, if asked for", pins.DCGM_CHART),
        )
    ]  # fmt: skip
    listed += [("engine image", f"`{engine.image}`", engine.source[0], engine.checked), ("router", router.version, router.source[0], router.checked)]
    rows = [(part, version, cited(source, "docs"), checked) for part, version, source, checked in listed]
    return table(("part", "version", "source", "checked"), rows)


def _imported() -> Imported:
    """The sample of docs/how-to/import.md."""
    found, secrets = read_sources([Source("values.yaml", SAMPLE.read_text(encoding="utf-8"))])
    return assemble(found, Wish("moved", "us-west-2", secrets=secrets), ROOT)


def imported_stack() -> list[str]:
    """The stack file that the sample comes to."""
    return ["", "```yaml", *stack_text(_imported(), ["values.yaml"], None).splitlines(), "```", ""]


def imported_account() -> list[str]:
    """What did not come along."""
    return ["", "```text", *account(_imported(), frozenset()).splitlines(), "```", ""]


def support() -> list[str]:
    """Instance types with their GPUs and EFA devices, versions of Kubernetes, the engine and other parts."""
    known = load_catalog()
    types = [(f"`{i}`", f"{e.gpu.count} x {known.instances[i].gpu.name}", e.efa.count or "none") for i, e in known.instances.items()]
    engines = ", ".join(f"{e.version} (`{i}`)" for i, e in known.engines.items())
    routers = ", ".join(e.version for e in known.routers.values())
    least, most = (".".join(map(str, v)) for v in (pins.LWS_MINIMUM_KUBERNETES, pins.NEWEST_KUBERNETES))
    parts = [
        ("Kubernetes on EKS", f"{least} to {most}, by default {pins.KUBERNETES.version}"),
        ("vLLM", engines),
        ("LeaderWorkerSet chart", pins.LWS_CHART.version),
        ("llm-d router", routers),
        ("Python", ">=3.11"),
    ]
    return [*table(("part", "versions"), parts), "", *table(("instance type", "GPUs", "EFA devices"), types)]


BLOCKS: Mapping[str, Callable[[], list[str]]] = {
    "costs": costs,
    "forms-of-glm": forms_of_glm5,
    "downloads": downloads,
    "tutorial-cost": tutorial_cost,
    "steps": steps,
    "start-times": start_times,
    "aws-resources": aws_resources,
    "support": support,
    "versions": versions,
    "imported-stack": imported_stack,
    "imported-account": imported_account,
    "modules": modules.modules,
    "iam-roles": lambda: rights.roles(recorded("staging"), recorded("glm5")),
    "deployer-actions": rights.actions_by_type,
    "deployer-policy": lambda: rights.printed(rights.deployer()),
    "preview-policy": lambda: rights.printed(rights.previewer()),
}
"""What a comment `<!-- generated: NAME -->` may ask for."""


def filled(page: str) -> str:
    """A page with its figures as they are now. Raises KeyError for a name that nothing writes."""
    return BLOCK.sub(lambda found: f"{found[1]}" + "\n".join(BLOCKS[found[2]]()) + f"\n{found[3]}", page)


def pages() -> dict[Path, str]:
    """Every page that has figures, with them."""
    found = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").rglob("*.md"))}
    return {file: filled(text) for file, text in found.items() if BLOCK.search(text)}
