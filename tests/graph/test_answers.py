"""What changes mean for those who call a model: who answers while pods restart, and under which name."""

from __future__ import annotations

from typing import Any

import pytest
from changes import compared
from disagg_serving.errors import Level
from disagg_serving.recording.plan import Plan, assemble
from factories import aggregated, environment, model, role
from recording import environment_graph

FULL = {"prefill": role(replicas=2, tensorParallel=4), "decode": role(replicas=4, tensorParallel=2)}
"""Roles that leave no GPU of their nodes idle, so that engines restart in place."""


def between(before: dict[str, Any], after: dict[str, Any]) -> Plan:
    """The comparison of two models' plans."""
    plans = [assemble("disagg-serving", "test", environment_graph(environment(m)), []) for m in (before, after)]
    return compared(plans[0], plans[1])


def rollouts(found: Plan) -> list[str]:
    """What the changes of LeaderWorkerSets mean."""
    return [c.effect for c in found.changes if c.type.endswith(":LeaderWorkerSet")]


@pytest.mark.parametrize("change", [{"extraArgs": ["--seed=7"]}, {"extraEnv": {"A": "b"}}, {"dtype": "float16"}])
def test_one_role_for_all(change: dict[str, Any]) -> None:
    """Engines without peers have the generation alone as identity, so those that have not restarted serve on."""
    server = {"server": role(replicas=4)}
    (effect,) = rollouts(between(aggregated(**server), aggregated(**server, **change)))
    assert "3 of 4 serve meanwhile" in effect
    assert "no answers" not in effect


@pytest.mark.parametrize("change", [{"extraArgs": ["--seed=7"]}, {"extraEnv": {"A": "b"}}, {"dtype": "float16"}, {"servedModelName": "other"}])
def test_roles_that_are_peers(change: dict[str, Any]) -> None:
    """What prefill and decode have in common is their identity: nobody says that those serve meanwhile which get no requests."""
    effects = rollouts(between(model(**FULL), model(**FULL, **change)))
    assert len(effects) == 2
    assert all("no answers until one of each role has loaded" in e and "serve meanwhile" not in e for e in effects)


def test_what_is_no_part_of_the_identity() -> None:
    """Pods of a role that wait for their turn serve on."""
    (effect,) = rollouts(between(model(**FULL), model(**{**FULL, "decode": {**FULL["decode"], "maxNumSeqs": 64}})))
    assert "3 of 4 serve meanwhile" in effect
    assert "no answers" not in effect


def test_a_name_that_nothing_serves_any_more() -> None:
    """Callers name the model: a renamed one, and one that is served under another name, refuse them; another pair of the same name does not."""
    renamed = between(model(), model(name="other"))
    gone = [c for c in renamed.changes if "callers that ask for model m get an error" in c.effect]
    assert {c.name.rpartition("/")[2] for c in gone} == {"m-prefill", "m-decode"}
    kept = between(model(), model(name="other", servedModelName="m"))
    assert not [c for c in kept.changes if "callers" in c.effect]


def test_a_cluster_that_is_made_anew() -> None:
    """Nothing in a deleted cluster rolls or serves meanwhile, and who deploys learns that the state then knows objects that are not there."""
    before, after = (
        environment(model(**FULL)),
        environment(model(**FULL, maxModelLen=8192), network={"cidr": "10.60.0.0/16", "zones": ["us-east-1a", "us-east-1b"]}),
    )
    plans = [assemble("disagg-serving", "test", environment_graph(d), []) for d in (before, after)]
    found = compared(plans[0], plans[1])
    assert rollouts(found) == ["it goes with the cluster that it is in"] * 2
    providers = [c for c in found.changes if c.type == "pulumi:providers:kubernetes"]
    assert [str(c.op) for c in providers] == ["update"] * 2
    assert [[(p.path, p.before, p.after) for p in c.paths] for c in providers] == [[("kubeconfig", "<secret>", "<computed anew>")]] * 2
    assert all("before a `pulumi refresh`" in c.effect and c.severity is Level.ERROR for c in providers)
    assert not [c for c in found.changes if c.type.startswith("aws:") and "goes with the cluster" in c.effect]


def test_a_model_in_another_namespace() -> None:
    """Its router does not restart in place, and a Service that goes for good does not come back in a moment."""
    effects = {c.name: c.effect for c in between(model(**FULL), model(**FULL, namespace="other")).changes}
    assert "made anew in the other namespace" in effects["test-m-router"]
    assert "cannot be reached by this name until it is there again" in effects["test-m/m-decode-api"]
    gone = {c.name: c.effect for c in between(model(**FULL), model(**FULL, name="n")).changes}
    assert "cannot be reached by this name any more" in gone["test-m/m-decode-api"]
