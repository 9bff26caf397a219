"""What Pulumi's SDK offers to a program, and the recorder answers: whatever a program declares besides our components, it has a plan."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pytest
from disagg_serving.document.resource import COMPUTED
from disagg_serving.errors import ProgramError
from disagg_serving.recording import recorder
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import Plan, assemble
from disagg_serving.recording.stops import OfflineError
from disagg_serving.report.html import render_html
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text
from pulumi.runtime import _callbacks
from pulumi.runtime.proto import engine_pb2_grpc, resource_pb2_grpc
from recording import one, program_graph

SDK = "\n".join(file.read_text(encoding="utf-8") for file in Path(inspect.getfile(pulumi)).parent.rglob("*.py") if "proto" not in file.parts)
SERVES_ITSELF = {"Invoke", "serve", "pretty_error"}
"""What the callback server does towards the engine, which nothing here calls."""


def offered(servicer: type) -> set[str]:
    """The methods of a service."""
    return {name for name in vars(servicer) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        (recorder._Monitor, offered(resource_pb2_grpc.ResourceMonitorServicer)),
        (recorder._Engine, {name for name in offered(engine_pb2_grpc.EngineServicer) if f".{name}(" in SDK}),
        (recorder._Callbacks, {name for name in offered(_callbacks._CallbackServicer) - SERVES_ITSELF if not name.startswith("do_")}),
    ],
)
def test_all_that_the_sdk_calls_is_answered(answers: type, wanted: set[str]) -> None:
    """An SDK that calls something new is noticed here before a user's program stumbles over it."""
    assert len(wanted) > 1
    assert {name for name in wanted if not hasattr(answers, name)} == set()


def changes(args: pulumi.ResourceTransformArgs) -> None:
    """A transform that changes nothing."""


def asked(args: pulumi.InvokeTransformArgs) -> None:
    """A transform of look-ups that changes nothing."""


def test_functions_that_the_engine_calls_are_counted() -> None:
    """Transforms, hooks and migrations are part of an ordinary program: each is counted once, and none of them is run."""

    def never(*_: object) -> Any:
        raise AssertionError("was run")

    def program() -> None:
        pulumi.runtime.register_resource_transform(changes)
        pulumi.runtime.register_invoke_transform(asked)
        before, failed = pulumi.ResourceHook("before", never), pulumi.ErrorHook("failed", never)
        binding = pulumi.ResourceHookBinding(before_create=[before], on_error=[failed])
        aws.s3.Bucket("a", opts=pulumi.ResourceOptions(hooks=binding, transforms=[changes, never]))
        aws.s3.Bucket("b", opts=pulumi.ResourceOptions(transforms=[changes], state_migrations=[never]))

    graph = program_graph(program)
    assert graph.callbacks == {"hooks": 2, "invokeTransforms": 1, "stateMigrations": 1, "transforms": 2}
    assert one(graph, "aws:s3/bucket:Bucket", "a").options.items() >= {"hooks": ["before", "failed"], "transforms": 2}.items()
    assert program_graph(lambda: None).callbacks == {}


@pytest.mark.parametrize(
    "shown",
    [lambda plan: render_text([plan], color=False), lambda plan: render_markdown([plan]), lambda plan: render_html([plan])],
    ids=["text", "markdown", "html"],
)
def test_every_format_says_what_is_not_simulated(shown: Callable[[Plan], str]) -> None:
    """A reader knows that something else changes resources after the plan, and where to see it; without any there is no such line."""
    some = Graph(program_graph(lambda: None).resources, {}, {"hooks": 1, "invokeTransforms": 2, "transforms": 3})
    said = shown(assemble("own", "dev", some, []))
    assert "3 transforms, 2 transforms of look-ups, 1 hook" in said
    assert "pulumi preview" in said
    assert "simulated" not in shown(assemble("own", "dev", program_graph(lambda: None), []))


def test_what_only_the_engine_knows_is_unknown() -> None:
    """Methods of resources, look-ups as outputs and whether something exists have unknown values; the rest of the SDK answers as an engine would."""

    async def main() -> dict[str, Any]:
        return {"late": 1}

    def program() -> None:
        pulumi.runtime.require_pulumi_version(">=3.0.0")
        cluster = eks.Cluster("x")
        pulumi.export("method", cluster.get_kubeconfig(profile_name="p"))
        pulumi.export("account", aws.get_caller_identity_output().account_id)
        pulumi.export("exists", pulumi.runtime.exists_resource(None, "aws:s3/bucket:Bucket", "x", {}, pulumi.ResourceOptions()))
        pulumi.run(main)

    graph = program_graph(program)
    assert graph.outputs == {"account": COMPUTED, "exists": COMPUTED, "late": 1, "method": COMPUTED}


@pytest.mark.parametrize(
    ("look_up", "says"),
    [
        (
            aws.get_caller_identity,
            "aws:index/getCallerIdentity:getCallerIdentity is looked up, which has no answer offline; use get_caller_identity_output",
        ),
        (lambda: pulumi.runtime.invoke_single("a:b:vpcOf", {}), "a:b:vpcOf is looked up, which has no answer offline; use vpc_of_output"),
    ],
)
def test_a_value_that_is_looked_up_at_once(look_up: Callable[[], object], says: str) -> None:
    """A look-up whose value the program needs at once gets a sentence that names it, the form to use instead, and the line; no traceback."""
    with pytest.raises(ProgramError) as stopped:
        program_graph(lambda: look_up() and None)
    assert f"stopped: {says}, whose value a plan need not know, tests/graph/test_sdk.py:" in str(stopped.value)
    assert stopped.value.trace == ""


def test_a_call_that_is_not_known_here() -> None:
    """What a newer SDK asks for is refused in a sentence."""
    with pytest.raises(OfflineError, match="RegisterTomorrow of Pulumi's SDK is not known here"):
        recorder._Monitor().RegisterTomorrow  # noqa: B018


def test_a_program_sees_its_own_arguments() -> None:
    """Pulumi gives a program no arguments but its own name: those of `disagg plan` would end a parser of them."""
    before, seen = list(sys.argv), list[str]()
    program_graph(lambda: seen.extend(sys.argv))
    assert [Path(word).name for word in seen] == ["__main__.py"]
    assert sys.argv == before


def test_a_program_that_ends_itself_well() -> None:
    """Exit code 0 is an end like any other, as for Pulumi: what was declared before is the plan."""

    def program() -> None:
        pulumi.ComponentResource("a:index:A", "seen", {})
        pulumi.export("a", 1)
        sys.exit(0)

    graph = program_graph(program)
    assert one(graph, "a:index:A").name == "seen"
    assert graph.outputs == {"a": 1}
