"""What the tests with real servers share: their stack files, the pods that these render to, prompts, and what a run prints."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.catalog import load_catalog
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.layout import build_layout, resolve
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import Evaluation, evaluate
from disagg_serving.spec import EnvironmentSpec
from disagg_serving.spec.validation import parse

from engine.serving import Server
from engine.serving_pods import Pod, pods_of

HERE = Path(__file__).resolve().parent / "engine"
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
"""Of pods: all of 127.0.0.0/8 is loopback on Linux, so that each has all ports for itself."""
VOCABULARY = range(300, 512)
"""Tokens of prompts; those before are single bytes and marks."""


def stack(name: str, **of_the_model: Any) -> dict[str, Any]:
    """The environment of a file beside the tests, with more fields of its model."""
    found: dict[str, Any] = deepcopy(yaml.safe_load((HERE / f"{name}.yaml").read_text(encoding="utf-8")))
    found["models"][0] |= of_the_model
    return found


def pods(layout: Layout) -> dict[str, Pod]:
    """The pods of its LeaderWorkerSets, as they are rendered, by name; the addresses go round in pairs."""
    return {p.name: p for p in pods_of(build_all(layout), ADDRESSES)}


def evaluated(environment: dict[str, Any]) -> Evaluation:
    """What the checks say of an environment."""
    return evaluate(environment, HERE)


def laid_out(environment: dict[str, Any]) -> Layout:
    """The layout of an environment that the checks take."""
    return evaluated(environment).require_layout()


def laid_out_anyway(environment: dict[str, Any]) -> Layout:
    """The layout of an environment that the checks refuse: what would be rendered without them."""
    spec = parse(EnvironmentSpec, environment)
    served, unknown = resolve(spec, load_catalog(spec.catalog_dirs, HERE), HERE)
    assert not unknown
    return build_layout(spec, served)


def prompt_of(length: int) -> list[int]:
    """A prompt that no cache knows."""
    return random.choices(VOCABULARY, k=length)  # noqa: S311 (no secret)


def show(request: pytest.FixtureRequest, servers: Sequence[Server]) -> None:
    """Print what was changed of each server's command line, and how long it took to be ready."""
    capture, lines = request.config.pluginmanager.getplugin("capturemanager"), []
    assert capture is not None
    for server in servers:
        lines.append(f"\n{server.pod.name}: ready after {server.seconds:.0f} s, log {server.log}")
        lines += [f"  {f'{c.before} -> ' if c.before else '+ '}{c.after}: {c.reason}" for c in server.changes]
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n".join(lines) + "\n")
