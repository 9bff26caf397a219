"""Small changes of the code that would harm those who upgrade: each is made here, and each is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
import upgrades
from packaging.version import Version
from upgrades import Written, contract_faults, faults, kept, kept_contract, told

from scripts import contract

VERSION = max({k.version for k in kept()}, key=Version)
CHART, RECORD, PRIORITY = "kubernetes:helm.sh/v4:Chart", "aws:route53/record:Record", "kubernetes:scheduling.k8s.io/v1:PriorityClass"
CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
REPLACED, GONE = f"replace, {upgrades.UNSAID}: ", f"delete, {upgrades.UNSAID}: "
LIBRARY, COMPONENT, STACK, PRINTED = contract.NAMES, contract.COMPONENTS, contract.STACK, contract.PRINTED
Data = dict[str, Any]


def one(folder: str, stack: str) -> upgrades.Kept:
    """A kept stack of the newest release."""
    return next(k for k in kept() if (k.version, k.folder.relative_to(upgrades.RELEASED / VERSION).as_posix(), k.stack) == (VERSION, folder, stack))


def made() -> Data:
    """The plan of the stack that has everything."""
    return one("programs/whole", "made").before()


def copy_of(data: Data, old: str = "", new: str = "") -> Data:
    """Data of its own, with a text replaced that it must hold."""
    text = json.dumps(data)
    assert old in text
    found: Data = json.loads(text.replace(old, new) if old else text)
    return found


def release_with_r(served: Any) -> str:
    """Another name of the router's release."""
    from disagg_serving.manifests.gateway import release_name

    return f"{release_name(served)}-r"


@pytest.mark.parametrize(
    ("place", "value", "refused"),
    [
        ("manifests.serving.PRIORITY", 12345, f"the API server refuses to change value: * {PRIORITY}"),
        ("resources.lws.CHART_RELEASE", "lws2", f"{REPLACED}* {CHART} because of name"),
        ("resources.autoscaling.CHART_RELEASE", "keda2", f"{REPLACED}* {CHART} because of name"),
        ("resources.observability.RELEASE", "dcgm", f"{REPLACED}* {CHART} because of name"),
        ("resources.observability.EXPORTER_NAMESPACE", "gpu-metrics", f"{REPLACED}* {CHART} because of namespace"),
        ("resources.gateway.release_name", release_with_r, f"{REPLACED}* {CHART} because of name"),
    ],
)
def test_constants(monkeypatch: pytest.MonkeyPatch, place: str, value: Any, refused: str) -> None:
    """A name or number that the code holds and a cluster keeps is not changed in passing."""
    monkeypatch.setattr(f"disagg_serving.{place}", value)
    stack = one("programs/whole", "made")
    after = upgrades.today.__wrapped__(stack.folder, stack.stack)
    assert not isinstance(after, str)
    head, _, tail = refused.partition("* ")
    kind, _, because = tail.partition(" because")
    found = [f for f in faults(stack.before(), after, []) if f.startswith(head) and f"{kind}::" in f]
    assert found
    assert all(f.endswith(f"because{because}") for f in found) if because else True


def renamed_outputs(plan: Data) -> Data:
    """The outputs that another stack reads, under other names."""
    after = copy_of(plan)
    after["outputs"] = {{"clusterName": "cluster", "gpuSubnetIds": "gpuSubnets"}.get(k, k): v for k, v in plan["outputs"].items()}
    return after


def other_endpoint(plan: Data) -> Data:
    """The model's endpoint under another address."""
    after = copy_of(plan)
    after["outputs"]["endpoints"]["public"] = "https://models.example.com"
    return after


def without_transforms(plan: Data) -> Data:
    """The chart of the controller without what keeps its CRDs."""
    after = copy_of(plan)
    for r in after["resources"]:
        if r["name"] == "made-lws" and r["type"] == CHART:
            del r["options"]["transforms"]
    return after


def other_record(plan: Data) -> Data:
    """The DNS record under another name."""
    after = copy_of(plan)
    next(r for r in after["resources"] if r["type"] == RECORD)["inputs"]["name"] = "other.example.com"
    return after


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (renamed_outputs, [f"{GONE}output clusterName, which was ", f"{GONE}output gpuSubnetIds, which was "]),
        (other_endpoint, [f'change, {upgrades.UNSAID}: output endpoints.public, which was "https://llama.example.com"']),
        (without_transforms, ["no longer transformed: urn:pulumi:made::whole::"]),
        (other_record, [f"{REPLACED}urn:pulumi:made::whole::"]),
        (lambda p: copy_of(p, "disagg-serving:index:Observability", "disagg-serving:index:Obs"), ["no alias: "]),
        (lambda p: copy_of(p, "disagg-serving:index:Autoscaling", "disagg-serving:index:Scaling"), ["no alias: "]),
        (lambda p: {**p, "reads": ["cluster"]}, ["reads the output cluster of another stack"]),
    ],
)
def test_plans(change: Callable[[Data], Data], refused: list[str]) -> None:
    """What a plan would show of a change is looked at as a whole: outputs, transforms, records, components that few stacks have."""
    plan = made()
    found = list(faults(plan, change(plan), []))
    assert [r for r in refused if not any(f.startswith(r) for f in found)] == []


def test_outputs_that_may_be_others() -> None:
    """More outputs, other forecasts, and what a page speaks of, are no harm."""
    plan = made()
    after = copy_of(plan)
    after["outputs"]["more"] = 1
    after["outputs"]["capacity"][0]["kvBytesPerTokenPerGpu"] += 1
    assert list(faults(plan, after, [])) == []
    rows = [Written("delete", "output", "clusterName"), Written("delete", "output", "gpu*")]
    assert list(faults(plan, renamed_outputs(plan), rows)) == []


def gone(part: str, path: str) -> Callable[[Data], None]:
    """Takes an entry away."""
    return lambda found: found[part].pop(path) and None


def put(part: str, path: str, **values: Any) -> Callable[[Data], None]:
    """Writes into an entry, or makes one."""

    def change(found: Data) -> None:
        entry = found[part].setdefault(path, {"kinds": ["string"]})
        entry.update(values)

    return change


ENV = "config.disagg-serving:environment"


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (gone(LIBRARY, "Observability"), "delete, {}: library Observability"),
        (gone(LIBRARY, "spec_args.ModelSpecArgs"), "delete, {}: library spec_args.ModelSpecArgs"),
        (gone(LIBRARY, "Cluster.kubernetes_provider upsert"), "delete, {}: library Cluster.kubernetes_provider upsert"),
        (put(LIBRARY, "deploy name", required=True), "change, {}: library deploy name is new and required"),
        (gone(COMPONENT, "ModelServing argument createNamespace"), "delete, {}: component ModelServing argument createNamespace"),
        (put(COMPONENT, "ModelServing argument zone", required=True), "change, {}: component ModelServing argument zone is required"),
        (put(COMPONENT, "NodePools argument nodeRole", plain=True), "change, {}: component NodePools argument nodeRole takes no Output any more"),
        (put(COMPONENT, "ModelSpec tier", required=True), "change, {}: component ModelSpec tier is new and required"),
        (gone(COMPONENT, "Environment output clusterName"), "delete, {}: component Environment output clusterName"),
        (put(STACK, f"{ENV}.models[].maxModelLen", kinds=["string"]), f"change, {{}}: stack file {ENV}.models[].maxModelLen is no longer integer"),
        (put(STACK, f"{ENV}.models[].kvCacheDtype", values=["auto"]), f"change, {{}}: stack file {ENV}.models[].kvCacheDtype no longer takes fp8"),
        (put(STACK, f"{ENV}.name", values=["prod"]), f"change, {{}}: stack file {ENV}.name takes only prod"),
        (gone(STACK, f"{ENV}.models[].candidate.generation"), f"delete, {{}}: stack file {ENV}.models[].candidate.generation"),
        (gone(PRINTED, "resources[].urn"), "delete, {}: plan resources[].urn"),
        (put(PRINTED, "resources[].urn", kinds=["null", "string"]), "change, {}: plan resources[].urn is also null"),
        (put(PRINTED, "checks", required=False), "change, {}: plan checks is no longer always there"),
        (put(contract.CHARTS, CRD, retainOnDelete=False), f"change, {{}}: chart {CRD} is deleted with its chart"),
    ],
)
def test_contract(change: Callable[[Data], None], refused: str) -> None:
    """What programs, stack files and readers of plans use does not go, ask for more, or give less; a page can allow it."""
    before, after = kept_contract(VERSION), kept_contract(VERSION)
    change(after)
    found = list(contract_faults(before, after, []))
    wanted = refused.format(upgrades.UNSAID)
    assert wanted in found
    op, part = wanted.partition(",")[0], wanted.partition(": ")[2]
    kind = next(p for p in before if part.startswith(f"{p} "))
    assert wanted not in contract_faults(before, after, [Written(op, kind, "*")])


@pytest.mark.parametrize(
    "change",
    [
        put(LIBRARY, "Mirror", kinds=["class"]),
        put(COMPONENT, "ModelServing argument priority"),
        put(COMPONENT, "Mirror argument bucket", required=True),
        put(COMPONENT, "ModelServing argument zone", required=False),
        put(STACK, f"{ENV}.models[].maxModelLen", kinds=["null", "number", "string"]),
        put(STACK, f"{ENV}.mirror.bucket", required=True),
        put(PRINTED, "resources[].age", required=True),
    ],
)
def test_what_may_be_added(change: Callable[[Data], None]) -> None:
    """Names, arguments and keys may be added, and more may be taken than before."""
    after = kept_contract(VERSION)
    change(after)
    assert list(contract_faults(kept_contract(VERSION), after, [])) == []


def test_chart_objects_that_are_no_longer_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transform itself is asked what it gives to CRDs, webhooks and certificates."""
    monkeypatch.setattr("disagg_serving.resources.lws.keep_and_ignore", lambda args: pulumi.ResourceTransformResult(args.props, args.opts))
    after = contract.contract.__wrapped__()
    lost = [f.partition(": chart ")[2] for f in contract_faults(kept_contract(VERSION), after, [])]
    assert f"{CRD} is deleted with its chart" in lost
    assert "kubernetes:core/v1:Secret is no longer left alone at data" in lost


def test_what_a_failure_says() -> None:
    """A fault a line, renames first, and once what can be done about each kind that is there."""
    unsaid = f"{GONE}urn:b"
    lines = told("x, stack y", ["no longer protect: urn:c", unsaid, "no alias: urn:a is now urn:b"]).splitlines()
    assert lines[:5] == ["x, stack y, faults: 3", "  no alias: urn:a is now urn:b", f"  {unsaid}", "  no longer protect: urn:c", "what to do:"]
    assert "aliases=[pulumi.Alias(" in lines[5]
    assert len(lines) < 12
    assert "Alias" not in told("x", [unsaid])
