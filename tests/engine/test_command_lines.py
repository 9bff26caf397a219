"""Every generated command line under the real parsers and configuration checks of vLLM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from disagg_serving.catalog.flags import FOLDER
from disagg_serving.catalog.verdicts import readers
from disagg_serving.recording.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from factories import ROOT, SHIPPED, check
from generator import Generator
from hypothesis import HealthCheck, Phase, given, settings

from engine.build import PARSERS, Engine
from engine.cases import CommandLine, ask, command_lines
from engine.flags import dump
from engine.variables import of_vllm

DRAWN = 200
OF_A_CPU = "max_num_batched_tokens (2048) must be greater"
"""Tokens a step that vLLM chooses on a CPU; such a command line is asked about again with the GPU's."""


def of_projects() -> Iterator[CommandLine]:
    """Of all shipped stacks and examples."""
    for folder in [SHIPPED, *(f for f in sorted((ROOT / "examples").iterdir()) if (f / "Pulumi.yaml").exists())]:
        project = find_project(folder)
        if project.runtime != "python":  # components of the same kind in a language that is not recorded
            continue
        for stack in project.stacks():
            found = make_plan(project, project.stack_file(stack)).layout  # an example is a program of its own
            assert found is not None
            yield from command_lines(f"{folder.name}/{stack}", found.groups)


def drawn() -> list[CommandLine]:
    """Of environments drawn at random that can be laid out; whether their memory suffices is not a parser's matter."""
    lines: list[CommandLine] = []
    seen = 0

    @given(Generator(odds=60).environment())
    @settings(
        max_examples=DRAWN * 6, database=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
    )
    def collect(data: object) -> None:
        nonlocal seen
        found = check(data).layout if seen < DRAWN else None
        if found is not None:
            seen += 1
            lines.extend(command_lines(f"drawn {seen}", found.groups))

    collect()
    assert seen == DRAWN
    return lines


@pytest.fixture(scope="module")
def lines() -> list[CommandLine]:
    """All of them, each form once: drawn environments repeat themselves."""
    unique = {(line.version, line.facts.id, line.argv): line for line in [*drawn(), *of_projects()]}
    return list(unique.values())


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_no_command_line_is_refused(engine: Engine, lines: list[CommandLine], tmp_path: Path) -> None:
    """The parser and the configuration checks of each pinned version take every command line, also those that are generated for the other."""
    verdicts = ask(engine, lines, tmp_path)
    of_cpu = {line.name: line.on_gpu for line, v in zip(lines, verdicts, strict=True) if OF_A_CPU in v.reason and line.on_gpu is not line}
    refused = [v for v in [*verdicts, *ask(engine, of_cpu.values(), tmp_path)] if not v.accepted]
    assert [v for v in refused if v.name not in of_cpu or OF_A_CPU not in v.reason] == []
    assert len(of_cpu) < len(lines) / 10


def test_page_says_how_many(lines: list[CommandLine]) -> None:
    """docs/engine.md gives the number of command lines that were asked about."""
    assert f"{len(lines)} different ones, each by both versions" in (ROOT / "docs/engine.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_catalogue_has_the_engine_s_flags(engine: Engine) -> None:
    """The flags that `disagg check` knows are those that the parser lists."""
    written = json.loads((FOLDER / f"vllm-{engine.version}.json").read_text(encoding="utf-8"))
    assert {part: written[part] for part in ("flags", "short")} == dump(engine)


def test_catalogue_has_what_the_engines_read() -> None:
    """The variables of vLLM that have verdicts are those in its own table."""
    assert {f"vLLM {engine.version}": sorted(of_vllm(engine)) for engine in PARSERS} == {n: v for n, v in readers().items() if n.startswith("vLLM ")}
