"""Runs a Pulumi program without engine, providers, credentials or network, and records what it registers.

The program sees a first preview: nothing exists yet, ids and computed outputs are unknown.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf import struct_pb2
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime import resource as resource_runtime
from pulumi.runtime.config import set_all_config
from pulumi.runtime.proto import callback_pb2, resource_pb2, source_pb2
from pulumi.runtime.stack import run_in_stack

from ..errors import ProgramError, SpecError, Terminated, ToolError
from ..planning.evaluation import Evaluation
from ..resources.base import watched
from ..resources.wording import ChecksFailed
from .graph import COMPUTED, SECRET, Graph, Resource

STACK_TYPE = "pulumi:pulumi:Stack"
PROGRAM = "__main__.py"
_SIGNATURE = rpc._special_sig_key
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
) -> Recording:
    """Record the `__main__.py` of `root`, or `program`.

    `config` holds plain values by full key (`aws:region`), `secrets` the keys whose values stay unknown to us. Raises SpecError when
    the program refuses its input, ProgramError when it does not come to its end, also when it leaves by itself: a plan of half a
    program would say that the other half is deleted.
    """
    if program is None and not (root / PROGRAM).is_file():
        raise ToolError(f"{project} has no program: {PROGRAM} is missing beside Pulumi.yaml or in its `main` folder")
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    values |= dict.fromkeys(secrets, _PLACEHOLDER)
    monitor, evaluations = _Monitor(), list[Evaluation]()
    # what depends on a failed Output stays unobserved; Pulumi's language host silences this, too
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    def run() -> None:
        watched.set(evaluations)
        settings.configure(
            mocks.MockSettings(  # type: ignore[no-untyped-call]
                monitor=monitor,
                monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),  # type: ignore[no-untyped-call]
                engine=_Silent(),
                project=project,
                stack=stack,
                dry_run=True,
                organization="organization",
                root_directory=str(root),
                callbacks=_Callbacks(),
            )
        )
        settings.set_root_resource(None)  # type: ignore[arg-type]
        settings.SETTINGS.outputs.clear()  # what a program before this one left when it failed
        settings.SETTINGS.rpc_manager.clear()
        set_all_config(values, list(secrets))
        asyncio.run(run_in_stack(lambda: _run_program(root, program)))

    try:
        with _inside(root), _without_stack_traces(), redirect_stdout(sys.stderr):  # standard output is the report's
            contextvars.copy_context().run(run)
    except ChecksFailed as problem:
        raise SpecError(problem.findings) from None
    except pulumi.RunError as problem:
        raise ProgramError(stack, str(problem)) from None
    except (SpecError, ToolError, Terminated):
        raise
    except SystemExit as problem:
        raise ProgramError(stack, f"it ended by itself, with exit code {problem.code or 0}") from None
    except Exception as problem:
        raise ProgramError(stack, _said(problem, root), _trace(problem, root)) from problem
    return Recording(monitor.graph(), evaluations)


def _said(problem: Exception, root: Path) -> str:
    """What an exception says, and the last line of the program itself that led there."""
    own = [(f.filename, f.lineno) for f in _own_frames(problem, root)]
    if isinstance(problem, SyntaxError) and problem.filename:
        own = [(problem.filename, problem.lineno)]
    said = f"{type(problem).__name__}: {problem.msg if isinstance(problem, SyntaxError) else problem}".removesuffix(": ")
    return f"{said}, {os.path.relpath(own[-1][0], root)}:{own[-1][1]}" if own else said


def _own_frames(problem: Exception, root: Path) -> list[traceback.FrameSummary]:
    """Frames of the project's own files, without those of a virtual environment inside it."""
    return [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(root) and "site-packages" not in f.filename]


def _trace(problem: Exception, root: Path) -> str:
    """The traceback from the program's own first line on; how it came to be run is not its matter."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = _own_frames(problem, root)
    start = frames.index(own[0]) if own else len(frames)
    return "".join(traceback.StackSummary.from_list(frames[start:]).format())


async def _run_program(root: Path, program: Callable[[], object] | None) -> None:
    if program is None:
        runpy.run_path(str(root / PROGRAM), run_name="__main__")
    else:
        program()
    # the SDK awaits outputs one by one, which takes quadratic time; what fails here it raises itself afterwards
    while pending := [task for task in settings.SETTINGS.outputs if not task.done()]:
        await asyncio.wait(pending)


@contextmanager
def _inside(root: Path) -> Iterator[None]:
    """The program's own working folder and import path, as Pulumi's language host gives them."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(root)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Leave out the source positions that the SDK collects for each registration: a third of the time, and nothing reads them here."""
    collect = resource_runtime._get_stack_trace
    resource_runtime._get_stack_trace = source_pb2.StackTrace
    try:
        yield
    finally:
        resource_runtime._get_stack_trace = collect


class _Silent:
    """An engine that keeps log messages to itself: the plan shows the findings behind them."""

    def Log(self, request: Any) -> None:  # noqa: N802 (the engine's name)
        """Drop a message."""


class _Callbacks:
    """Takes the place of the SDK's callback server, which would listen on a port.

    Transforms reach into remote components, which only the engine expands, so here they are counted and not run.
    """

    def register_transform(self, transform: object) -> callback_pb2.Callback:
        """A callback that nobody calls."""
        return callback_pb2.Callback(token=getattr(transform, "__qualname__", "transform"), target="offline")

    async def shutdown(self) -> None:
        """Nothing runs."""


class _Monitor(mocks.MockMonitor):
    """Keeps each registration and answers as the engine does in the preview of an empty stack."""

    def __init__(self) -> None:
        super().__init__(_NoMocks())
        self._recorded: dict[str, Resource] = {}
        self._outputs: dict[str, Any] = {}

    def graph(self) -> Graph:
        """What was recorded, by URN."""
        return Graph(dict(sorted(self._recorded.items())), self._outputs)

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """A URN like the engine's: qualified by the types of all parents, the stack left out."""
        if parent:
            parent_type = parent.split("::")[2]
            if parent_type != STACK_TYPE:
                type_ = f"{parent_type}${type_}"
        return f"urn:pulumi:{settings.get_stack()}::{settings.get_project()}::{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the engine's name)
        """Record a resource; in a preview its state is its inputs, that of a remote component nothing, and the rest is unknown."""
        urn = self.make_urn(request.parent, request.type, request.name)
        if urn in self._recorded:
            raise RuntimeError(f"two resources have the URN {urn}")
        self._recorded[urn] = _resource(urn, request)
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, "", {})
        return resource_pb2.RegisterResourceResponse(urn=urn, id="", object=None if request.remote else request.object)

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Record a read, for example of another stack; what it finds is unknown."""
        urn = self.make_urn(request.parent, request.type, request.name)
        inputs = {**_plain_struct(request.properties), "id": request.id}
        self._recorded[urn] = Resource(
            urn, request.type, request.name, request.parent or None, None, False, True, inputs, tuple(sorted(request.dependencies)), {"read": True}
        )  # fmt: skip
        return resource_pb2.ReadResourceResponse(urn=urn, properties=request.properties)

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """A look-up has no answer offline."""
        if request.tok == "pulumi:pulumi:getResource":
            return super().Invoke(request)  # type: ignore[no-untyped-call]
        return resource_pb2.ResourceInvokeResponse(unknown=True)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Keep the stack's outputs."""
        if f"::{STACK_TYPE}::" in request.urn:
            self._outputs = _plain_struct(request.outputs)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]


class _NoMocks(mocks.Mocks):
    """The recorder answers by itself; the SDK's monitor wants an object all the same."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return "", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
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
        return COMPUTED if value.string_value == rpc.UNKNOWN else value.string_value
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
    signature = fields[_SIGNATURE].string_value if _SIGNATURE in fields else ""
    if signature == rpc._special_secret_sig:
        return SECRET
    if signature == rpc._special_resource_sig:
        return fields["urn"].string_value
    return _plain_struct(value.struct_value)
