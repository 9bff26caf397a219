"""The policy pack without an engine: what it offers, and what it makes of the engine's values."""

from __future__ import annotations

from typing import Any

import pulumi_policy as crossguard
import pytest
from disagg_serving.errors import Level, SpecError
from disagg_serving.resources.environment import TYPE
from disagg_serving.resources.policy import OTHERWISE, policies
from disagg_serving.resources.program import deploy
from disagg_serving.rules import NO_STACK, StackContext, rules
from disagg_serving.rules.evaluation import evaluate
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY
from factories import ROOT, environment, model, role
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy
from recording import one, program_graph

PACK = {p.name: p for p in policies()}
ACCEPTED = environment(model(decode=role(replicas=8, capacity={"nodes": 1})), accept={"group-capacity": "the second reservation begins on Monday"})


def test_one_list() -> None:
    """The pack is the list of `disagg rules`: errors stop, warnings are shown, the rest is off until somebody turns it on."""
    levels = {
        Level.ERROR: crossguard.EnforcementLevel.MANDATORY,
        Level.WARNING: crossguard.EnforcementLevel.ADVISORY,
        Level.INFO: crossguard.EnforcementLevel.DISABLED,
    }
    offered = [(p.name, p.description, p.enforcement_level) for p in PACK.values() if p.name not in {name for name, _ in OTHERWISE.values()}]
    assert offered == [(r.id, r.summary, levels[r.level]) for r in rules()]


def reported(rule: str, spec: Any, config: dict[str, Any] | None = None, kind: str = TYPE, said: StackContext = NO_STACK) -> list[str]:
    """What a policy says about an Environment."""
    found: list[str] = []
    inputs = {"spec": spec, "stack": said.as_dict()}
    args = crossguard.ResourceValidationArgs(kind, unknown_checking_proxy(inputs), "urn", "test", None, None, config or {}, {})  # type: ignore[arg-type]
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


GUARDED = environment(model(gateway={"apiKeySecret": "apiKey"}))
KEY = "disagg-serving:apiKey"


@pytest.mark.parametrize(
    ("policy", "spec", "said", "words"),
    [
        ("network-zones", environment(), StackContext("eu-west-1"), "is not aws:region eu-west-1"),
        ("network-zones", environment(), StackContext("us-east-1"), ""),
        ("secret-keys", GUARDED, StackContext(None, frozenset()), "is not a secret of this stack"),
        ("secret-keys", GUARDED, StackContext(None, frozenset({KEY})), ""),
        ("disagg-errors", GUARDED, StackContext(None, frozenset(), frozenset({KEY})), "[secret-keys] models[0].gateway.apiKeySecret: apiKey stands"),
        ("disagg-errors", environment(), NO_STACK, ""),
        ("provider-credentials", environment(), StackContext(None, frozenset(), frozenset({"aws:token"})), "aws:token: stands in the stack file"),
        ("provider-credentials", environment(), StackContext(None, frozenset({"aws:token"})), ""),
    ],
)
def test_the_stack_counts(monkeypatch: pytest.MonkeyPatch, policy: str, spec: Any, said: StackContext, words: str) -> None:
    """Rules that need the region or the names of secrets find in the pack what they find in `disagg check`."""
    monkeypatch.chdir(ROOT)
    found = reported(policy, spec, said=said)
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_warnings_of_error_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of a rule whose level is error is shown, stops nothing, and what a stack file accepts is no such warning."""
    monkeypatch.chdir(ROOT)
    mixed = environment(model(prefill=role(replicas=2, tensorParallel=8), decode=role(replicas=4, tensorParallel=4)))
    (warned,) = [f for f in evaluate(mixed, ROOT).findings if f.id == "pd-tensor-parallel"]
    assert warned.level is Level.WARNING
    assert f"[pd-tensor-parallel] {warned.sentence()}" in reported("disagg-warnings", mixed)
    assert reported("pd-tensor-parallel", mixed) == []
    assert PACK["disagg-warnings"].enforcement_level is crossguard.EnforcementLevel.ADVISORY
    assert PACK["disagg-errors"].enforcement_level is crossguard.EnforcementLevel.MANDATORY
    assert not [m for m in reported("disagg-warnings", ACCEPTED) if "group-capacity" in m]


def test_every_finding_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its level, an error or a warning comes from one policy."""
    monkeypatch.chdir(ROOT)
    spec = environment(
        model(gateway={"apiKeySecret": "apiKey"}, prefill=role(replicas=2, tensorParallel=8), decode=role(replicas=4, tensorParallel=4))
    )
    said = StackContext("eu-west-1", frozenset(), frozenset({KEY}))
    wanted = sorted(f.sentence() for f in evaluate(spec, ROOT, said).findings if f.level is not Level.INFO)
    over = [p.name for p in PACK.values() if isinstance(p, crossguard.ResourceValidationPolicy)]
    on = [n for n in over if PACK[n].enforcement_level is not crossguard.EnforcementLevel.DISABLED]
    assert sorted(m.split("] ", 1)[1] if m.startswith("[") else m for n in on for m in reported(n, spec, said=said)) == wanted


def test_the_program_says_it() -> None:
    """The program gives the pack the region and the names of keys, and no value."""
    config = {"aws:region": "us-east-1", "disagg-serving:other": "word"}
    graph = program_graph(deploy, {**config, ENVIRONMENT_KEY: GUARDED}, frozenset({KEY}))
    said = one(graph, TYPE).inputs["stack"]
    assert said == {"region": "us-east-1", "secrets": [KEY], "plain": ["disagg-serving:other"]}


def test_the_program_refuses_secrets_in_plain_text() -> None:
    """`pulumi up` checks with what the engine says about the stack, as `disagg check` does with its file."""
    config = {"aws:region": "eu-west-1", KEY: "word", ENVIRONMENT_KEY: GUARDED}
    with pytest.raises(SpecError) as refused:
        program_graph(deploy, config)
    assert [(f.path, f.message) for f in refused.value.findings] == [
        ("models[0].gateway.apiKeySecret", "stands in the stack file in plain text"),
        ("network.zones", "is not aws:region eu-west-1"),
    ]


def stack(rule: str, *resources: crossguard.PolicyResource) -> list[tuple[str, str | None]]:
    """What a policy says about the resources of a stack."""
    found: list[tuple[str, str | None]] = []
    policy = PACK[rule]
    assert isinstance(policy, crossguard.StackValidationPolicy)

    def report(message: str, urn: str | None = None) -> None:
        found.append((message, urn))

    policy.validate(crossguard.StackValidationArgs(list(resources), {}, {}), report)
    return found


def resource(kind: str, name: str, props: dict[str, Any], provider: str = "", **config: str) -> crossguard.PolicyResource:
    """A resource as the engine shows it to a pack; a component has no provider."""
    package = f"pulumi:providers:{kind.partition(':')[0]}"
    by = crossguard.PolicyProviderResource(package, config, f"urn:{provider}", provider) if provider else None
    return crossguard.PolicyResource(kind, unknown_checking_proxy(props), f"urn:{name}", name, None, by, None, [], {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("providers", "same"),
    [
        (("default", "default_7_39_0"), True),
        (("east", "east"), True),
        (("default-east", "default-west"), False),
        (("default", "west"), False),
        (("", ""), False),
    ],
)
def test_names_count_by_provider(providers: tuple[str, str], *, same: bool) -> None:
    """Two providers are two accounts or regions; all the engine's default ones are one, and that of a component is not known."""
    clusters = [resource("aws:eks/cluster:Cluster", f"c{i}", {"name": "prod"}, p) for i, p in enumerate(providers)]
    assert bool(stack("name-twice", *clusters)) is same


def test_a_configured_default_provider_leads_to_a_cluster() -> None:
    """What the default provider is configured with is known to a pack, so that only one without a cluster is refused."""
    cluster, kind = resource("aws:eks/cluster:Cluster", "c", {}, "default"), "kubernetes:core/v1:Namespace"
    name = "disagg-serving:index:ModelServing$m"
    plain, configured = resource(kind, name, {}, "default_4_1_0"), resource(kind, name, {}, "default_4_1_0", context="serving")
    assert len(stack("object-cluster", cluster, plain)) == 1
    assert stack("object-cluster", cluster, configured) == []


def test_objects() -> None:
    """Objects of any program are checked at their URN; values that only the deployment knows are no faults, other resources no objects."""
    pods = {"kind": "Pod", "spec": {"containers": [{"image": "a:latest"}, {"image": UNKNOWN_STRING_VALUE}, {"image": "b:1"}]}}
    bucket = resource("aws:s3/bucket:Bucket", "b", {"kind": "Pod", "spec": {"containers": [{"image": "c"}]}})
    found = stack("object-image", resource("kubernetes:core/v1:Pod", "mine/p", pods), bucket)
    assert found == [("Pod mine/p: spec.containers[0].image: a:latest floats (allowed: a tag or a digest); name a version", "urn:mine/p")]
