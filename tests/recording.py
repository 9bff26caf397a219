"""Recording programs in tests: of a stack, of an environment, or of a few lines that use components."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from disagg_serving.document.resource import Resource
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.recorder import record
from disagg_serving.resources.program import deploy
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY, find_project
from factories import ROOT, SHIPPED

PROJECT = find_project(SHIPPED)


@cache
def stack_graph(stack: str) -> Graph:
    """The recorded program of a stack file, once a test process."""
    file = PROJECT.stack_file(stack)
    return record(PROJECT.root, PROJECT.name, stack, {**file.config, ENVIRONMENT_KEY: file.environment}, file.secrets).graph


def environment_graph(data: dict[str, Any], secrets: frozenset[str] = frozenset()) -> Graph:
    """The recorded program of an environment."""
    return program_graph(deploy, {ENVIRONMENT_KEY: data}, secrets)


def program_graph(program: Callable[[], object], config: dict[str, Any] | None = None, secrets: frozenset[str] = frozenset()) -> Graph:
    """The recording of any program."""
    return record(ROOT, PROJECT.name, "test", config or {}, secrets, program=program).graph


def one(graph: Graph, type_token: str, name: str | None = None) -> Resource:
    """The one resource of a type (and name)."""
    (found,) = [r for r in graph.of_type(type_token) if name in (None, r.name)]
    return found


def kinds(graph: Graph, *type_tokens: str) -> list[Resource]:
    """All resources of several types; there must be some of each."""
    found = [graph.of_type(t) for t in type_tokens]
    assert all(found), f"none of {[t for t, f in zip(type_tokens, found, strict=True) if not f]}"
    return [r for resources in found for r in resources]
