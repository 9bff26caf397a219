"""Runs a Pulumi program without engine, providers, credentials or network, and records what it registers.

The program sees a first preview: nothing exists yet, ids and computed outputs are unknown.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf import struct_pb2
from pulumi import runtime

from ..document.plan import Callback
from ..document.resource import COMPUTED, SECRET, STACK_TYPE, Resource
from ..errors import ProgramError, SpecError, Terminated, ToolError
from ..resources import sdk
from ..resources.base import Watch, watched
from ..resources.wording import ChecksFailed
from ..rules.evaluation import Evaluation, Question
from .graph import Graph
from .stops import OfflineError, reason_of, trace_of

PROGRAM = "__main__.py"
LIBRARY = __name__.partition(".")[0]
_PLACEHOLDER = "secret"


@dataclass(frozen=True)
class Recording:
    """What a program registered, and what its components found out about their input."""

    graph: Graph
    evaluations: list[Evaluation]


def record(  # noqa: PLR0913 (what a run of a program consists of)
    root: Path,
    project: str,
    stack: str,
    config: Mapping[str, Any],
    secrets: frozenset[str] = frozenset(),
    *,
    program: Callable[[], object] | None = None,
    known: tuple[Question, Evaluation] | None = None,
) -> Recording:
    """Record the `__main__.py` of `root`, or `program`.

    `config` holds plain values by full key (`aws:region`), `secrets` the keys whose values stay unknown to us, and `known` an evaluation that
    the program need not repeat. Raises SpecError when the program refuses its input, ProgramError when it does not come to its end. Leaving
    with exit code 0 is an end, as for Pulumi, unless nothing was declared before: an empty plan of it would look like a decision.
    """
    if program is None and not (root / PROGRAM).is_file():
        raise ToolError(f"{project} has no program: {PROGRAM} is missing beside Pulumi.yaml or in its `main` folder")
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    values |= dict.fromkeys(secrets, _PLACEHOLDER)
    monitor, callbacks, watch = _Monitor(), _Callbacks(), Watch(known)
    # what depends on a failed Output stays unobserved; Pulumi's language host silences this, too
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    left = False

    async def to_its_end() -> None:
        nonlocal left
        left = await _run_program(root, program)

    def run() -> None:
        watched.set(watch)
        sdk.begin(
            monitor=monitor,
            monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),
            engine=_Engine(),
            project=project,
            stack=stack,
            dry_run=True,
            organization="organization",
            root_directory=str(root),
            callbacks=callbacks,
        )
        runtime.set_all_config(values, list(secrets))
        asyncio.run(runtime.run_in_stack(to_its_end))

    try:
        with (
            _inside(root),
            sdk.without_stack_traces(),
            sdk.look_ups_through(_refused),
            redirect_stdout(sys.stderr),
        ):  # standard output is the report's
            contextvars.copy_context().run(run)
    except ChecksFailed as problem:
        raise SpecError(problem.findings) from None
    except pulumi.RunError as problem:
        raise ProgramError(stack, str(problem)) from None
    except (SpecError, ToolError, Terminated):
        raise
    except SystemExit as problem:
        raise ProgramError(stack, f"it ended by itself, with exit code {problem.code}") from None
    except Exception as problem:
        raise ProgramError(stack, reason_of(problem, root), trace_of(problem, root)) from problem
    graph = monitor.graph(callbacks.counted())
    if left and all(r.type == STACK_TYPE for r in graph.resources.values()):
        raise ProgramError(stack, "it ended by itself, with exit code 0, before it declared anything")
    return Recording(graph, watch.evaluations)


async def _run_program(root: Path, program: Callable[[], object] | None) -> bool:
    """Whether the program left with exit code 0 instead of coming to its last line."""
    left = False
    try:
        if program is None:
            runpy.run_path(str(root / PROGRAM), run_name="__main__")
        else:
            program()
    except SystemExit as end:
        if isinstance(end, Terminated) or end.code:
            raise
        left = True
    # the SDK awaits outputs one by one, which takes quadratic time; what fails here it raises itself afterwards
    while pending := sdk.unfinished():
        await asyncio.wait(pending)
    return left


@contextmanager
def _inside(root: Path) -> Iterator[None]:
    """The program's own working folder, import path and arguments, as Pulumi's language host gives them."""
    before, path, arguments = Path.cwd(), list(sys.path), list(sys.argv)
    os.chdir(root)
    sys.path.insert(0, str(root))
    sys.argv[:] = [str(root / PROGRAM)]
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:], sys.argv[:] = path, arguments


def _refused(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Say what to write instead where a program needs the value of a look-up at once; generated SDKs would stumble over the missing one."""

    def invoke(tok: str, *args: Any, **kwargs: Any) -> Any:
        result = plain(tok, *args, **kwargs)
        if not result.is_known:
            function = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tok.rpartition(":")[2]).lower()
            raise OfflineError(f"{tok} is looked up, which has no answer offline; use {function}_output, whose value a plan need not know")
        return result

    return invoke


class _Offline:
    """The part of an SDK that a test compares with ours; what a newer one has besides is refused in a sentence."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise OfflineError(f"{name} of Pulumi's SDK is not known here; install the version that requirements.txt pins")


class _Engine(_Offline):
    """An engine that keeps log messages to itself, the plan shows the findings behind them, and that takes any version for its own."""

    def Log(self, request: Any) -> None:  # noqa: N802 (the engine's name)
        """Drop a message."""

    def RequirePulumiVersion(self, request: Any) -> None:  # noqa: N802
        """The engine that deploys decides."""


class _Callbacks(_Offline):
    """Takes the place of the SDK's callback server, which would listen on a port.

    Only the engine calls these functions of a program, at times that a plan does not reach, so here they are counted and not run.
    Those of the library are not counted: what they do to charts is tested on the real engine, and a reader has nothing to look up.
    """

    def __init__(self) -> None:
        self._kept: dict[Callback, set[object]] = {}

    def counted(self) -> dict[Callback, int]:
        """How many functions of each kind a program gave."""
        return {kind: len(functions) for kind, functions in sorted(self._kept.items())}

    def _keep(self, kind: Callback, function: object) -> sdk.callback_pb2.Callback:
        if not str(getattr(function, "__module__", "")).startswith(f"{LIBRARY}."):
            self._kept.setdefault(kind, set()).add(function)
        return sdk.callback_pb2.Callback(token=getattr(function, "__qualname__", kind), target="offline")

    def register_transform(self, transform: object) -> sdk.callback_pb2.Callback:
        """A callback that nobody calls."""
        return self._keep("transforms", transform)

    def register_state_migration(self, migration: object) -> sdk.callback_pb2.Callback:
        """A callback that nobody calls: there is no state."""
        return self._keep("stateMigrations", migration)

    def register_stack_transform(self, transform: object) -> None:
        """Keep a transform of all resources."""
        self._keep("transforms", transform)

    def register_invoke_transform(self, transform: object) -> None:
        """Keep a transform of all look-ups."""
        self._keep("invokeTransforms", transform)

    def register_resource_hook(self, hook: object) -> None:
        """Keep a hook."""
        self._keep("hooks", hook)

    def register_error_hook(self, hook: object) -> None:
        """Keep a hook."""
        self._keep("hooks", hook)

    async def shutdown(self) -> None:
        """Nothing runs."""


class _Monitor(_Offline, sdk.MockMonitor):
    """Keeps each registration and answers as the engine does in the preview of an empty stack."""

    def __init__(self) -> None:
        super().__init__(_NoMocks())
        self._recorded: dict[str, Resource] = {}
        self._outputs: dict[str, Any] = {}

    def graph(self, callbacks: Mapping[Callback, int]) -> Graph:
        """What was recorded, by URN."""
        return Graph(dict(sorted(self._recorded.items())), self._outputs, callbacks)

    def GetDeploymentInfo(self, request: Any) -> Any:  # noqa: N802 (the engine's name)
        """What an engine of today can do, so that no program is told to update it."""
        info = super().GetDeploymentInfo(request)  # type: ignore[no-untyped-call]
        info.supportedFeatures.append(sdk.resource_pb2.RESOURCE_MONITOR_FEATURE_STATE_MIGRATIONS)
        return info

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """A URN like the engine's: qualified by the types of all parents, the stack left out."""
        if parent:
            parent_type = parent.split("::")[2]
            if parent_type != STACK_TYPE:
                type_ = f"{parent_type}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Record a resource; in a preview its state is its inputs, that of a remote component nothing, and the rest is unknown."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if urn in self._recorded:
            raise RuntimeError(f"two resources have the URN {urn}; give one of them another name")
        self._recorded[urn] = _resource(urn, request)
        self.resources[urn] = sdk.MockMonitor.ResourceRegistration(urn, "", {})
        return sdk.resource_pb2.RegisterResourceResponse(urn=urn, id="", object=None if request.remote else request.object)

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Record a read, for example of another stack; what it finds is unknown."""
        urn = self.make_urn(request.parent, request.type, request.name)
        inputs = {**_plain_struct(request.properties), "id": request.id}
        self._recorded[urn] = Resource(
            urn, request.type, request.name, request.parent or None, None, False, True, inputs, tuple(sorted(request.dependencies)), {"read": True}
        )  # fmt: skip
        return sdk.resource_pb2.ReadResourceResponse(urn=urn, properties=request.properties)

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """A look-up has no answer offline."""
        if request.tok == "pulumi:pulumi:getResource":
            return super().Invoke(request)  # type: ignore[no-untyped-call]
        return sdk.resource_pb2.ResourceInvokeResponse(unknown=True)

    def Call(self, request: Any) -> Any:  # noqa: ARG002, N802
        """A method of a resource that does not exist yet: its result is unknown."""
        response = sdk.provider_pb2.CallResponse()
        getattr(response, "return").update({"result": sdk.UNKNOWN})
        return response

    def ExistsResource(self, request: Any) -> Any:  # noqa: ARG002, N802
        """Whether something exists is unknown."""
        return sdk.resource_pb2.ExistsResourceResponse(unknown=True)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Keep the stack's outputs."""
        if f"::{STACK_TYPE}::" in request.urn:
            self._outputs = _plain_struct(request.outputs)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]


class _NoMocks(runtime.Mocks):
    """The recorder answers by itself; the SDK's monitor wants an object all the same."""

    def new_resource(self, args: runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return "", dict(args.inputs)

    def call(self, args: runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


def _resource(urn: str, request: Any) -> Resource:
    timeouts = {key: getattr(request.customTimeouts, key) for key in ("create", "update", "delete") if getattr(request.customTimeouts, key)}
    options = {
        "protect": request.protect,
        "retainOnDelete": request.retainOnDelete,
        "ignoreChanges": list(request.ignoreChanges),
        "replaceOnChanges": list(request.replaceOnChanges),
        "additionalSecretOutputs": list(request.additionalSecretOutputs),
        "deletedWith": request.deletedWith,
        "customTimeouts": timeouts,
        "aliases": [_alias(a) for a in request.aliases] + list(request.aliasURNs),
        "version": request.version,
        "providers": {key: _provider_urn(value) for key, value in sorted(request.providers.items())},
        "transforms": len(request.transforms),
        "hooks": sorted({name for _, names in request.hooks.ListFields() for name in names}),
    }
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        parent=request.parent or None,
        provider=_provider_urn(request.provider),
        remote=request.remote,
        custom=request.custom,
        inputs=_plain_struct(request.object),
        depends_on=tuple(sorted(set(request.dependencies))),
        options={key: value for key, value in options.items() if value},
        input_dependencies={key: sorted(set(d.urns)) for key, d in sorted(request.propertyDependencies.items()) if d.urns},
    )


def _alias(alias: Any) -> Any:
    if alias.WhichOneof("alias") == "urn":
        return alias.urn
    spec = alias.spec
    return {key: getattr(spec, key) for key in ("name", "type", "stack", "project", "parentUrn") if getattr(spec, key)}


def _provider_urn(reference: str) -> str | None:
    """`urn::id` without the id, which is unknown in a preview."""
    return reference.rsplit("::", 1)[0] if reference else None


def _plain_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    return {key: _plain(value) for key, value in sorted(struct.fields.items())}


def _plain(value: struct_pb2.Value) -> Any:
    """A protobuf value as JSON data; unknowns and secrets become words."""
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return COMPUTED if value.string_value == sdk.UNKNOWN else value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_plain(v) for v in value.list_value.values]
    if kind != "struct_value":
        return None
    fields = value.struct_value.fields
    signature = fields[sdk.SIGNATURE].string_value if sdk.SIGNATURE in fields else ""
    if signature == sdk.SECRET_SIGNATURE:
        return SECRET
    if signature == sdk.RESOURCE_SIGNATURE:
        return fields["urn"].string_value
    return _plain_struct(value.struct_value)
