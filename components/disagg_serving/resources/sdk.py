"""What the package uses of Pulumi's SDK beyond the names that it publishes, and the three of its functions that are replaced for a while.

Such a name may change in any release: pyproject.toml allows no release of `pulumi` beyond those that this module is held against
(tests/unit/test_sdk_names.py lists them), and no other module imports one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from pulumi import runtime
from pulumi.provider.experimental import component
from pulumi.provider.experimental.analyzer import Analyzer
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.experimental.util import camel_case
from pulumi.provider.server import ComponentInitError
from pulumi.runtime import resource
from pulumi.runtime.config import CONFIG
from pulumi.runtime.mocks import MockMonitor, MockSettings
from pulumi.runtime.proto import callback_pb2, provider_pb2, resource_pb2, source_pb2
from pulumi.runtime.rpc import UNKNOWN
from pulumi.runtime.rpc import _special_resource_sig as RESOURCE_SIGNATURE  # noqa: N812 (a constant)
from pulumi.runtime.rpc import _special_secret_sig as SECRET_SIGNATURE  # noqa: N812
from pulumi.runtime.rpc import _special_sig_key as SIGNATURE  # noqa: N812
from pulumi.runtime.settings import SETTINGS, get_monitor, set_root_resource

__all__ = [
    "RESOURCE_SIGNATURE",
    "SECRET_SIGNATURE",
    "SIGNATURE",
    "UNKNOWN",
    "Analyzer",
    "ComponentInitError",
    "ComponentProvider",
    "MockMonitor",
    "analysed_by",
    "begin",
    "callback_pb2",
    "camel_case",
    "configured_keys",
    "is_mocked",
    "look_ups_through",
    "provider_pb2",
    "resource_pb2",
    "unfinished",
    "without_stack_traces",
]


def configured_keys() -> frozenset[str]:
    """The full names of all keys of the stack's configuration."""
    return frozenset(CONFIG.get())


def is_mocked() -> bool:
    """Whether the program runs under the mocks of a unit test, `pulumi.runtime.set_mocks`."""
    return type(get_monitor()) is MockMonitor


def begin(**settings: Any) -> None:
    """Let programs of this context talk to these stand-ins for the engine, without what one before left behind when it failed."""
    runtime.configure(MockSettings(**settings))  # type: ignore[no-untyped-call]
    set_root_resource(None)  # type: ignore[arg-type]
    SETTINGS.outputs.clear()
    SETTINGS.rpc_manager.clear()


def unfinished() -> list[asyncio.Task[Any]]:
    """The tasks of Outputs that a program has made and that are not done."""
    return [task for task in SETTINGS.outputs if not task.done()]


@contextmanager
def without_stack_traces() -> Iterator[None]:
    """Leave out the source positions that the SDK collects for each registration: a third of the time, and nothing reads them here."""
    with _replaced(resource, "_get_stack_trace", source_pb2.StackTrace):
        yield


@contextmanager
def look_ups_through(wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replace the function by which generated SDKs look something up at once with what `wrapper` makes of it."""
    module = import_module("pulumi.runtime.invoke")  # the package has a function of the same name
    wrapped = wrapper(module.invoke)
    with _replaced(module, "invoke", wrapped), _replaced(runtime, "invoke", wrapped):
        yield


@contextmanager
def analysed_by(analyzer: type[Analyzer]) -> Iterator[None]:
    """Let a ComponentProvider that is made meanwhile read annotations by this analyzer."""
    with _replaced(component, "Analyzer", analyzer):
        yield


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
