"""Comparing plans as data: paths, renames, options, providers, figures, and plans of older versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from changes import compared, difference_of
from disagg_serving import labels
from disagg_serving.comparison.base_plan import read_plan
from disagg_serving.comparison.effects.serving import LWS
from disagg_serving.comparison.replacements import covers
from disagg_serving.comparison.values import differences
from disagg_serving.document.difference import NEW_ID, Change, Op
from disagg_serving.document.plan import PlanDocument
from disagg_serving.document.resource import COMPUTED
from disagg_serving.errors import Level
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import assemble
from disagg_serving.report.figures import verdict_of
from disagg_serving.report.text import render_text

COMPONENT = "acme:index:Part"
VPC, SUBNET, KEY, BUCKET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:kms/key:Key", "aws:s3/bucket:Bucket"
CONFIG_MAP, SERVICE, PRIORITY = "kubernetes:core/v1:ConfigMap", "kubernetes:core/v1:Service", "kubernetes:scheduling.k8s.io/v1:PriorityClass"
PROVIDER = "pulumi:providers:kubernetes"


def urn(*types: str, name: str = "x") -> str:
    """A URN of stack s in project p."""
    return f"urn:pulumi:s::p::{'$'.join(types)}::{name}"


def resource(*types: str, name: str = "x", **rest: Any) -> dict[str, Any]:
    """A recorded resource below components of the types before its own."""
    kind = types[-1]
    data: dict[str, Any] = {
        "urn": urn(*types, name=name),
        "type": kind,
        "name": name,
        "parent": None,
        "provider": None,
        "remote": False,
        "inputs": {},
    }
    return {**data, "custom": kind != COMPONENT, "dependsOn": [], "options": {}, **rest}


def plan(*resources: dict[str, Any], **rest: Any) -> PlanDocument:
    """A plan with these resources, read as that of another revision."""
    return read_plan({"project": "p", "stack": "s", "resources": list(resources), **rest})


def between(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> PlanDocument:
    """The comparison of two lists of resources."""
    return compared(plan(*before), plan(*after))


def only(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Change:
    """The one change between them."""
    (change,) = between(before, after).changes
    return change


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": 1}, {}, [("a", 1, None)]),
        ({"a": {"b.c": 1}}, {"a": {"b.c": 2}}, [("a.b.c", 1, 2)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [("a[1]", 2, 3)]),
        ({"a": ["x", "y", "z"]}, {"a": ["x", "z"]}, [("a[1]", "y", None)]),
        ({"a": ["x", "z"]}, {"a": ["w", "x", "z"]}, [("a[0]", None, "w")]),
        ({"a": []}, {"a": ["x"]}, [("a[0]", None, "x")]),
        (
            {"e": [{"name": "A", "value": 1}]},
            {"e": [{"name": "B", "value": 2}, {"name": "A", "value": 1}]},
            [("e[B]", None, {"name": "B", "value": 2})],
        ),
        ({"e": [{"name": "A", "v": 1}, {"name": "B", "v": 1}]}, {"e": [{"name": "A", "v": 1}, {"name": "B", "v": 2}]}, [("e[B].v", 1, 2)]),
        (
            {"e": [{"name": "A"}, {"name": "B"}]},
            {"e": [{"name": "B"}, {"name": "A"}]},
            [("e", [{"name": "A"}, {"name": "B"}], [{"name": "B"}, {"name": "A"}])],
        ),
        ({"e": [{"key": "A", "v": 1}]}, {"e": [{"key": "A", "v": 2}]}, [("e[A].v", 1, 2)]),
        ({"a": True}, {"a": None}, [("a", True, None)]),
        ({"a": {"b": 1}}, {"a": [1]}, [("a", {"b": 1}, [1])]),
    ],
)
def test_paths(before: Any, after: Any, expected: list[Any]) -> None:
    """Values are named as a person would find them; one entry put into a list is one difference and not all behind it."""
    assert list(differences(before, after)) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "yes"),
    [
        ("spec.template", "spec.template", True),
        ("spec.template", "spec.template.spec.containers[a].image", True),
        ("spec.template", "spec.templates", False),
        ("data", "data.key", True),
        ("webhooks[*].clientConfig.caBundle", "webhooks[mpod].clientConfig.caBundle", True),
        ("webhooks[*].clientConfig.caBundle", "webhooks[mpod].clientConfig.url", False),
        ("*", "anything", True),
        ("spec.clusterIP", "spec.clusterIPs[0]", False),
    ],
)
def test_patterns(pattern: str, path: str, yes: bool) -> None:  # noqa: FBT001
    """A property path covers what is below it and no neighbour that begins alike."""
    assert covers(pattern, path) is yes


def test_a_move_without_alias_is_an_error() -> None:
    """A resource under another parent would be deleted and made anew, which the program's author did not mean."""
    change = only([resource(BUCKET)], [resource(COMPONENT, BUCKET)])
    assert (change.op, change.former, change.severity) == (Op.RENAME, urn(BUCKET), Level.ERROR)
    assert "without an alias" in change.effect
    assert "protected" not in change.effect


def test_the_loss_of_a_key_is_an_error() -> None:
    """What was encrypted with a deleted key can never be read again, so a review stops at it."""
    change = only([resource("aws:kms/key:Key")], [])
    assert (change.op, change.severity) == (Op.DELETE, Level.ERROR)
    assert "can never be read again" in change.effect


def test_the_loss_of_a_way_out_is_a_warning() -> None:
    """Nodes of a zone without its NAT gateway pull nothing until another is there, which is more than news."""
    change = only([resource("aws:ec2/natGateway:NatGateway")], [])
    assert (change.op, change.severity) == (Op.DELETE, Level.WARNING)
    assert "have no way out" in change.effect


def test_a_move_of_what_is_protected_is_refused() -> None:
    """Without an alias the engine would have to delete what is protected; with one it has nothing to refuse."""
    protect: dict[str, Any] = {"options": {"protect": True}}
    moved = only([resource(BUCKET, **protect)], [resource(COMPONENT, BUCKET, **protect)])
    assert (moved.op, moved.severity) == (Op.RENAME, Level.ERROR)
    assert "it is protected: the engine refuses" in moved.effect
    kept = only([resource(BUCKET, **protect)], [resource(COMPONENT, BUCKET, options={"protect": True, "aliases": [urn(BUCKET)]})])
    assert (kept.op, kept.severity) == (Op.RENAME, Level.INFO)


@pytest.mark.parametrize("alias", [urn(BUCKET, name="old"), {"name": "old"}])
def test_a_rename_with_alias_is_none(alias: Any) -> None:
    """An alias, as a URN or by name, keeps the resource; it is still told."""
    change = only([resource(BUCKET, name="old")], [resource(BUCKET, name="new", options={"aliases": [alias]})])
    assert (change.op, change.severity, change.effect) == (Op.RENAME, Level.INFO, "was old; its alias keeps it")


def test_an_alias_of_a_component_holds_for_what_is_in_it() -> None:
    """The engine derives aliases of children from their parents'; so does the plan, with names that begin with the parent's."""
    before = [resource(COMPONENT, name="old"), resource(COMPONENT, KEY, name="old-key", parent=urn(COMPONENT, name="old"))]
    after = [
        resource(COMPONENT, name="new", options={"aliases": [{"name": "old"}]}),
        resource(COMPONENT, KEY, name="new-key", parent=urn(COMPONENT, name="new")),
    ]
    found = between(before, after).changes
    assert {(c.op, c.former, c.severity) for c in found} == {
        (Op.RENAME, urn(COMPONENT, name="old"), Level.INFO),
        (Op.RENAME, urn(COMPONENT, KEY, name="old-key"), Level.INFO),
    }


def test_what_depends_on_what_an_alias_keeps_stays() -> None:
    """The id of an aliased resource is the old one, so a subnet in an aliased VPC and an object of an aliased provider are not made anew."""
    aliased = {"aliases": [{"name": "old"}]}
    of_vpc: dict[str, Any] = {"inputs": {"vpcId": COMPUTED}}
    before = [resource(VPC, name="old"), resource(SUBNET, inputDependencies={"vpcId": [urn(VPC, name="old")]}, **of_vpc)]
    after = [resource(VPC, name="new", options=aliased), resource(SUBNET, inputDependencies={"vpcId": [urn(VPC, name="new")]}, **of_vpc)]
    assert [(c.op, c.type) for c in between(before, after).changes] == [(Op.RENAME, VPC)]
    before = [resource(PROVIDER, name="old"), resource(PRIORITY, provider=urn(PROVIDER, name="old"))]
    after = [resource(PROVIDER, name="new", options=aliased), resource(PRIORITY, provider=urn(PROVIDER, name="new"))]
    assert [(c.op, c.type) for c in between(before, after).changes] == [(Op.RENAME, PROVIDER)]
    after[0]["options"] = {}
    assert (Op.REPLACE, PRIORITY) in [(c.op, c.type) for c in between(before, after).changes]


def test_an_alias_does_not_hide_a_replacement() -> None:
    """A renamed bucket that also gets another physical name is made anew in spite of its alias."""
    after = resource(BUCKET, name="new", inputs={"bucket": "b"}, options={"aliases": [{"name": "old"}]})
    change = only([resource(BUCKET, name="old", inputs={"bucket": "a"})], [after])
    assert (change.op, change.former, change.severity) == (Op.REPLACE, urn(BUCKET, name="old"), Level.ERROR)
    assert "deleted with the weights" in change.effect


def test_the_same_object_under_another_name_is_a_rename() -> None:
    """Kubernetes objects are told apart by what they are called in the cluster, whatever Pulumi calls them."""
    inputs = {"metadata": {"name": "m", "namespace": "n"}}
    change = only([resource(CONFIG_MAP, name="a/m", inputs=inputs)], [resource(CONFIG_MAP, name="b/m", inputs=inputs)])
    assert (change.op, change.severity) == (Op.RENAME, Level.ERROR)


def test_another_object_is_no_rename() -> None:
    """One object less and another one more is a deletion and a creation."""
    found = between(
        [resource(CONFIG_MAP, name="a/m", inputs={"metadata": {"name": "m"}})], [resource(CONFIG_MAP, name="a/o", inputs={"metadata": {"name": "o"}})]
    )
    assert {c.op for c in found.changes} == {Op.CREATE, Op.DELETE}


def test_what_a_replaced_resource_is_part_of() -> None:
    """A replacement goes on through computed inputs: to those that force one, and as an update to the others."""
    subnet: dict[str, Any] = {"inputs": {"vpcId": COMPUTED}, "inputDependencies": {"vpcId": [urn(VPC)]}}
    before = [resource(VPC, inputs={"cidrBlock": "10.0.0.0/16"}), resource(SUBNET, **subnet), resource(KEY, **subnet)]
    after = [resource(VPC, inputs={"cidrBlock": "10.1.0.0/16"}), *before[1:]]
    found = {c.type: c for c in between(before, after).changes}
    assert {t: c.op for t, c in found.items()} == {VPC: Op.REPLACE, SUBNET: Op.REPLACE, KEY: Op.UPDATE}
    assert [(p.path, p.before, p.after, p.forces_replacement) for p in found[SUBNET].paths] == [("vpcId", COMPUTED, NEW_ID, True)]


def test_a_replaced_provider_replaces_all() -> None:
    """Objects of another cluster are other objects."""
    provider = urn(PROVIDER, name="k")
    objects = [resource(SERVICE, provider=provider)]
    before = [resource(PROVIDER, name="k", inputs={"clusterIdentifier": "a"}), *objects]
    found = between(before, [resource(PROVIDER, name="k", inputs={"clusterIdentifier": "b"}), *objects])
    assert [(c.op, c.severity) for c in found.changes if c.type == PROVIDER] == [(Op.REPLACE, Level.ERROR)]
    assert [c.op for c in found.changes if c.type == SERVICE] == [Op.REPLACE]


def test_options() -> None:
    """Protect is kept in the state and compared; ignored paths are not; replaceOnChanges replaces."""
    off = only([resource(KEY, options={"protect": True})], [resource(KEY)])
    assert [(p.path, p.before, p.after) for p in off.paths] == [("options.protect", True, None)]
    assert off.severity is Level.WARNING
    scaled = [resource(SERVICE, inputs={"spec": {"replicas": n}}, options={"ignoreChanges": ["spec.replicas"]}) for n in (1, 2)]
    assert not between(scaled[:1], scaled[1:]).changes
    typed = [resource(SERVICE, inputs={"spec": {"type": t}}, options={"replaceOnChanges": ["spec.type"]}) for t in "AB"]
    assert only(typed[:1], typed[1:]).op is Op.REPLACE


def test_a_protected_resource_is_refused() -> None:
    """Deleting what the state protects fails in the engine: the plan says so, and how to go on."""
    change = only([resource(KEY, options={"protect": True}, inputs={"deletionWindowInDays": 7})], [])
    assert change.severity is Level.ERROR
    assert "until an update with protect: false has run" in change.effect
    assert "deleted after 7 days" in change.effect


def test_a_refused_change() -> None:
    """A field that the API server never changes is an update that fails."""
    change = only([resource(PRIORITY, inputs={"value": 1})], [resource(PRIORITY, inputs={"value": 2})])
    assert (change.op, change.severity) == (Op.UPDATE, Level.ERROR)
    assert "refuses to change value" in change.effect


def test_versions_of_providers_are_a_note() -> None:
    """Another provider version is no change of each resource, but a reader has to know of it."""
    found = between([resource(KEY, options={"version": "7.1.0"})], [resource(KEY, options={"version": "7.2.0"})])
    assert not found.changes
    assert difference_of(found).notes == ["provider aws goes from 7.1.0 to 7.2.0, which may change more than is shown"]


def test_a_type_that_the_table_does_not_know_is_named() -> None:
    """A guess is called one."""
    found = between([resource("aws:sqs/queue:Queue", inputs={"name": "a"})], [resource("aws:sqs/queue:Queue", inputs={"name": "b"})])
    assert [c.op for c in found.changes] == [Op.UPDATE]
    assert "not in that table, so shown as an update: aws:sqs/queue:Queue" in difference_of(found).notes


def test_a_plan_of_an_older_version() -> None:
    """Plans that lack keys are compared by those that they have: nothing is made up, nothing breaks."""
    old = plan({"urn": urn(KEY), "type": KEY, "name": "x", "inputs": {"description": "a"}})
    found = compared(old, plan(resource(KEY, inputs={"description": "b"}, inputDependencies={"policy": [urn(VPC)]})))
    assert [(c.op, [p.path for p in c.paths]) for c in found.changes] == [(Op.UPDATE, ["description"])]
    kinds = (KEY, "eks:index:Cluster", "disagg-serving:index:Environment", "pulumi:pulumi:Stack")
    assert [r.custom for r in plan(*({"urn": urn(kind), "type": kind} for kind in kinds)).resources] == [True, True, False, False]
    everything = compared(None, plan(resource(KEY)))
    assert [c.op for c in everything.changes] == [Op.CREATE]


def test_what_is_refused_is_not_deleted() -> None:
    """A head whose checks stop before any resource is declared is compared by its checks alone."""
    refused = plan(checks=[{"id": "r", "level": "error", "path": "p", "message": "is wrong"}])
    plan_of_it = compared(plan(resource(BUCKET), cost={"perMonth": 1, "lines": [{"item": "p5", "perMonth": 1}]}), refused)
    found = difference_of(plan_of_it)
    assert (plan_of_it.changes, found.cost, found.compared) == ((), (), False)
    shown = replace(assemble("p", "s", Graph(), found.checks.new), difference=found)
    assert "resources and figures are not compared" in " ".join(render_text([shown], color=False).split())
    fact = verdict_of(shown).facts[0]
    assert (fact.name, fact.value, fact.level) == ("Changes", "not compared", Level.ERROR)
    assert [f.id for f in found.checks.new] == ["r"]
    assert "only they are compared" in found.notes[-1]


@pytest.mark.parametrize(("selector", "says"), [({"role": "decode"}, "of two revisions exchange KV"), ({"identity": "b"}, "do not meet: no answers")])
def test_revisions_of_prefill_and_decode(selector: dict[str, str], says: str) -> None:
    """Where Services select by what both roles must share, revisions do not mix, but nobody answers until both roles have loaded."""

    def sets(image: str, identity: str) -> list[dict[str, Any]]:
        def template(role: str) -> dict[str, Any]:
            marks = {labels.PART_OF: "m", labels.COMPONENT: role, "role": role, "identity": identity}
            return {"metadata": {"labels": marks}, "spec": {"containers": [{"name": "vllm", "image": image}]}}

        roles = ("prefill", "decode")
        return [
            resource(LWS, name=r, inputs={"spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template(r)}}}) for r in roles
        ]

    service = resource(SERVICE, inputs={"spec": {"selector": selector}})
    found = between([*sets("v1", "a"), service], [*sets("v2", "b"), service])
    assert [says in c.effect for c in found.changes] == [True, True]
    assert {"serve meanwhile" in c.effect for c in found.changes} == {"identity" not in selector}
    assert {c.severity for c in found.changes} == {Level.WARNING}


def test_figures() -> None:
    """Capacity that shrinks is a warning, pods without a node an error, and both stand before the rest."""

    def figures(tokens: int, nodes: int, unplaced: int, price: float) -> dict[str, Any]:
        bars = {"low": 1, "mid": tokens, "high": 2}
        gib = {"weightsGiB": {"mid": 1.0}, "kvGiB": {"mid": 2.0}}
        return {
            "capacity": [{"model": "m", "role": "decode", "perGpu": gib, "kvTokens": bars, "maxConcurrency": {"mid": 1.0}}],
            "placement": [
                {
                    "pool": "a",
                    "instanceType": "p5.48xlarge",
                    "nodes": [{"pods": ["x"], "idleGpus": 0}] * nodes,
                    "unplaced": ["y"] * unplaced,
                }
            ],
            "cost": {"perMonth": price, "lines": [{"item": "p5", "perMonth": price}]},
        }

    whole = compared(plan(**figures(100, 1, 0, 5.0)), plan(**figures(50, 2, 1, 10.0)))
    found = difference_of(whole)
    assert [(d.subject, d.figure, d.before, d.after, d.severity) for d in found.capacity] == [("m decode", "KV tokens", 100, 50, Level.WARNING)]
    assert [(d.figure, d.before, d.after, d.severity) for d in found.placement] == [
        ("pods without a node", 0, 1, Level.ERROR),
        ("nodes", 1, 2, Level.INFO),
        ("pods", 1, 2, Level.INFO),
    ]
    assert [(d.subject, d.before, d.after) for d in found.cost] == [("p5", 5.0, 10.0), ("total", 5.0, 10.0)]
    assert whole.severities() == {Level.ERROR, Level.WARNING, Level.INFO}


def test_long_values_are_shown_from_where_they_differ() -> None:
    """A line in the middle of a long text is what the reader sees, and not twice the same beginning."""
    texts = ["x" * 500 + end for end in ("before", "after")]
    found = between([resource(KEY, inputs={"policy": texts[0]})], [resource(KEY, inputs={"policy": texts[1]})])
    shown = render_text([replace(assemble("p", "s", Graph(), []), changes=found.changes, difference=found.difference)], color=False)
    assert "...xxxxxxxxxxxxxxxxxxxxbefore -> ...xxxxxxxxxxxxxxxxxxxxafter" in " ".join(shown.split())
