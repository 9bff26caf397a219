"""The policy pack without an engine: what it offers, and what it makes of the engine's values."""

from __future__ import annotations

from typing import Any

import pulumi_policy as crossguard
import pytest
from disagg_serving.errors import Level
from disagg_serving.planning.rules import rules
from disagg_serving.resources.environment import TYPE
from disagg_serving.resources.policy import policies
from factories import ROOT, environment, model, role
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

PACK = {p.name: p for p in policies()}
ACCEPTED = environment(model(decode=role(replicas=8, capacity={"nodes": 1})), accept={"group-capacity": "the second reservation begins on Monday"})


def test_one_list() -> None:
    """The pack is the list of `disagg rules`: errors stop, warnings are shown, the rest is off until somebody turns it on."""
    levels = {
        Level.ERROR: crossguard.EnforcementLevel.MANDATORY,
        Level.WARNING: crossguard.EnforcementLevel.ADVISORY,
        Level.INFO: crossguard.EnforcementLevel.DISABLED,
    }
    assert [(p.name, p.description, p.enforcement_level) for p in PACK.values()] == [(r.id, r.summary, levels[r.level]) for r in rules()]


def reported(rule: str, spec: Any, config: dict[str, Any] | None = None, kind: str = TYPE) -> list[str]:
    """What a policy says about an Environment."""
    found: list[str] = []
    args = crossguard.ResourceValidationArgs(kind, unknown_checking_proxy({"spec": spec}), "urn", "test", None, None, config or {}, {})  # type: ignore[arg-type]
    policy = PACK[rule]
    assert isinstance(policy, crossguard.ResourceValidationPolicy)

    def report(message: str, _: str | None = None) -> None:
        found.append(message)

    policy.validate(args, report)
    return found


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment's spec is checked as everywhere; other resources are passed by, and numbers arrive as the engine sends them."""
    monkeypatch.chdir(ROOT)
    faulty = environment(model(maxModelLen=1e9))
    (message,) = reported("max-model-len", faulty)
    assert message.startswith("models[0].maxModelLen: 1000000000 ")
    assert reported("max-model-len", faulty, kind="aws:s3/bucket:Bucket") == []
    assert reported("max-model-len", environment()) == []


def test_accepted_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stack file accepts is not reported, unless the pack is told to refuse it."""
    monkeypatch.chdir(ROOT)
    assert reported("group-capacity", ACCEPTED) == []
    (message,) = reported("group-capacity", ACCEPTED, {"refuseAccepted": True})
    assert message.endswith("accepted: the second reservation begins on Monday")


def stack(rule: str, *resources: crossguard.PolicyResource) -> list[tuple[str, str | None]]:
    """What a policy says about the resources of a stack."""
    found: list[tuple[str, str | None]] = []
    policy = PACK[rule]
    assert isinstance(policy, crossguard.StackValidationPolicy)

    def report(message: str, urn: str | None = None) -> None:
        found.append((message, urn))

    policy.validate(crossguard.StackValidationArgs(list(resources), {}, {}), report)
    return found


def resource(kind: str, name: str, props: dict[str, Any]) -> crossguard.PolicyResource:
    """A resource as the engine shows it to a pack."""
    return crossguard.PolicyResource(kind, unknown_checking_proxy(props), f"urn:{name}", name, None, None, None, [], {})  # type: ignore[arg-type]


def test_objects() -> None:
    """Objects of any program are checked at their URN; values that only the deployment knows are no faults, other resources no objects."""
    pods = {"kind": "Pod", "spec": {"containers": [{"image": "a:latest"}, {"image": UNKNOWN_STRING_VALUE}, {"image": "b:1"}]}}
    bucket = resource("aws:s3/bucket:Bucket", "b", {"kind": "Pod", "spec": {"containers": [{"image": "c"}]}})
    found = stack("object-image", resource("kubernetes:core/v1:Pod", "mine/p", pods), bucket)
    assert found == [("Pod mine/p: spec.containers[0].image: a:latest floats (allowed: a tag or a digest); name a version", "urn:mine/p")]
