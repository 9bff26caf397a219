"""What is declared twice in one cluster: found, and the advice about it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from disagg_serving.errors import Level
from disagg_serving.recording.graph import declared
from disagg_serving.resources import Autoscaling, Lws
from disagg_serving.rules import check_objects
from programs import environment, found, inside, model, pools, serve
from recording import program_graph


class Wrapper(pulumi.ComponentResource):
    """A component of somebody's own that serves a model."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"own:index:{name}", name, {}, opts)
        serve("m", pulumi.ResourceOptions(parent=self))


def served_twice() -> None:
    """Two components of the same model."""
    opts = inside()
    serve("a", opts)
    serve("b", opts)


def pools_twice() -> None:
    """Two components of the same pools."""
    opts = inside()
    pools("a", opts)
    pools("b", opts)


def a_namespace_twice() -> None:
    """A namespace of the program's own, and that of a model."""
    opts = inside()
    serve("a", opts, namespace="shared")
    k8s.core.v1.Namespace("own", metadata={"name": "shared"}, opts=pulumi.ResourceOptions(provider=opts.providers[0]))  # type: ignore[index]


def wrapped_twice() -> None:
    """The same component in two others."""
    opts = inside()
    Wrapper("One", opts)
    Wrapper("Two", opts)


def controllers_twice() -> None:
    """Two controllers, of which each would install the chart."""
    opts = inside()
    Lws("a", {}, opts)
    Lws("b", {}, opts)


def controllers_in_two_namespaces() -> None:
    """Two controllers whose CRDs are one cluster's."""
    opts = inside()
    Lws("a", {}, opts)
    Lws("b", {"namespace": "other"}, opts)


def autoscalers_twice(second: str = "chart") -> None:
    """Two models, with each of which KEDA comes."""
    opts = inside("scaled")
    for name, install in (("x", "chart"), ("y", second)):
        server = {"instance_type": "p5.48xlarge", "tensor_parallel": 4, "autoscaling": {"min_replica_count": 1, "max_replica_count": 2}}
        asks: Any = {"prometheus_address": "http://p.monitoring.svc:9090", "install": install}
        Autoscaling(name, {"model": model(name, server=server), "zone": "us-east-1a", "autoscaling": asks}, opts)


def an_environments_namespace() -> None:
    """A namespace that an environment makes for its model."""
    made = environment("made")
    k8s.core.v1.Namespace("own", metadata={"name": "m"}, opts=pulumi.ResourceOptions(provider=made.cluster.provider))


def a_shared_controller_namespace() -> None:
    """One namespace for two components that make it."""
    opts = inside()
    Lws("a", {"namespace": "ops"}, opts)
    asks: Any = {"prometheus_address": "http://p.monitoring.svc:9090", "namespace": "ops"}
    server = {"instance_type": "p5.48xlarge", "tensor_parallel": 4, "autoscaling": {"min_replica_count": 1, "max_replica_count": 2}}
    Autoscaling("b", {"model": model(server=server), "zone": "us-east-1a", "autoscaling": asks}, opts)


def config_maps(opts: pulumi.ResourceOptions, *metadata: dict[str, str]) -> None:
    """Objects of the program's own."""
    for name, given in zip("abc", metadata, strict=False):
        k8s.core.v1.ConfigMap(name, metadata=given, opts=opts)


def objects_of_the_programs_own() -> None:
    """Two objects of one name that are part of nothing."""
    provider = k8s.Provider("cluster", kubeconfig="k")
    config_maps(pulumi.ResourceOptions(provider=provider), {"name": "x"}, {"name": "x"})


def default_left_out() -> None:
    """The namespace `default` by name and without."""
    provider = k8s.Provider("cluster", kubeconfig="k")
    config_maps(pulumi.ResourceOptions(provider=provider), {"name": "x"}, {"name": "x", "namespace": "default"})


CASES: list[tuple[Callable[[], None], list[str]]] = [
    (
        served_twice,
        ["b/m", "a/m", "of ModelServing a", "more of ModelServing b", "give each model a `name` and a `namespace` of its own"],
    ),
    (pools_twice, ["NodeClass b/p5-48xlarge", "NodeClass a/p5-48xlarge of NodePools a", "make one NodePools with all models"]),
    (a_namespace_twice, ["Namespace own", "Namespace a/shared of ModelServing a", "give ModelServing a `create_namespace=False`"]),
    (an_environments_namespace, ["Namespace own: ", "leave it to ModelServing made-m"]),
    (a_shared_controller_namespace, ["give one another `namespace`"]),
    (objects_of_the_programs_own, ["ConfigMap b: ", "ConfigMap a of the program; make it once, or give one another name"]),
    (default_left_out, ["ConfigMap b: is, unless its kubeconfig has another namespace than `default`, the same object"]),
    (wrapped_twice, ["own:index:One$disagg-serving:index:ModelServing$", "own:index:Two$"]),
    (controllers_twice, ["Chart b-lws", "Chart a-lws of Lws a", "set `install` to `existing` in all but one"]),
    (controllers_in_two_namespaces, ["Chart b-lws: makes the same CRDs of a cluster as Chart a-lws of Lws a; set `install`"]),
    (autoscalers_twice, ["Chart y-keda", "set `autoscaling.install` to `existing` in all but one"]),
]


@pytest.mark.parametrize(("program", "says"), CASES, ids=[c[0].__name__ for c in CASES])
def test_what_is_declared_twice(program: Callable[[], None], says: list[str]) -> None:
    """What two would make in one cluster is named with both sides, and with what to do about it."""
    sentences = [sentence for rule, sentence in found(program) if rule == "object-twice"]
    assert sentences
    assert [words for words in says if not any(words in s for s in sentences)] == []


def another_default() -> None:
    """A provider whose objects go to another namespace than `default` where they name none."""
    provider = k8s.Provider("cluster", kubeconfig="k", namespace="team")
    config_maps(pulumi.ResourceOptions(provider=provider), {"name": "x"}, {"name": "x", "namespace": "default"})


def one_controller_of_two() -> None:
    """What the advice about controllers and namespaces says."""
    opts = inside()
    Lws("a", {}, opts)
    Lws("b", {"namespace": "other", "install": "existing"}, opts)
    autoscalers_twice("existing")
    config_maps(pulumi.ResourceOptions(provider=opts.providers[0]), {"name": "x"}, {"name": "x2"})  # type: ignore[index]
    serve("m", opts, namespace="m-space")
    serve("n", opts, name="n", namespace="n-space")


def served_twice_by_default() -> None:
    """Two components of the same model by the default provider."""
    serve("a", None)
    serve("b", None)


@pytest.mark.parametrize("config", [(), ("kubernetes:context",)], ids=["plain", "configured"])
def test_a_default_provider_leads_to_one_cluster(config: tuple[str, ...]) -> None:
    """Whatever leads the default provider to a cluster, it is the same one for all that has no other provider."""
    assert [rule for rule, _ in found(served_twice_by_default, *config)] == ["object-twice"]


@pytest.mark.parametrize("program", [another_default, one_controller_of_two], ids=lambda p: p.__name__)
def test_what_may_be_declared_again(program: Callable[[], None]) -> None:
    """Objects of two namespaces, and what the advice says, are no fault."""
    assert found(program) == []


def test_a_namespace_that_a_kubeconfig_may_name_only_warns() -> None:
    """Objects that leave `default` out go to the kubeconfig's namespace, which nobody knows before it is read."""
    assert [(f.id, f.level) for f in check_objects(declared(program_graph(default_left_out)))] == [("object-twice", Level.WARNING)]
