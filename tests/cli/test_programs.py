"""Programs that do not come to their end: no plan is made of half a program, and what stopped it is said without the tool's own lines."""

from __future__ import annotations

import json

import pytest
from command_line import Run, process
from repositories import Repository

ONE_STOPS = """
import pulumi
pulumi.ComponentResource("acme:index:Thing", "seen", {})
if pulumi.get_stack() == "test":
    %s
"""


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ("raise SystemExit(3)", "it ended by itself, with exit code 3"),
        ("raise SystemExit('enough')", "it ended by itself, with exit code enough"),
        ("raise ValueError('a\\n::error::b\\x1b[2J')", "ValueError: a ::error::b\\x1b[2J, __main__.py:5"),
        ("pulumi.nothing()", "AttributeError: module 'pulumi' has no attribute 'nothing', __main__.py:5"),
        ("int('x' * 3)", "ValueError: invalid literal for int() with base 10: 'xxx', __main__.py:5"),
        (
            "import json; json.loads('{')",
            "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1), __main__.py:5",
        ),
        ("raise pulumi.RunError('not so')", "not so"),
    ],
)
def test_a_program_that_stops(own: Repository, disagg: Run, ends: str, says: str) -> None:
    """One stack's plan is exit code 1 and nothing is written; of all stacks the others are planned, and this one is an error."""
    own.commit({"__main__.py": ONE_STOPS % ends, "Pulumi.other.yaml": "config: {}\n"})
    for base in ((), ("--base", "main")):
        assert disagg("plan", "test", "--format", "json", *base, cwd=own.project) == 1
        assert not disagg.out
        assert disagg.err.endswith(f"error: the program of stack test stopped: {says}\n")
        assert disagg("plan", "--all", "--format", "json", *base, cwd=own.project) == 2
        plans = {p["stack"]: p for p in json.loads(disagg.out)}
        assert [(c["id"], c["level"], c["message"].endswith(says)) for c in plans["test"]["checks"]] == [("program", "error", True)]
        assert [r["name"] for r in plans["other"]["resources"]] == ["seen", "own-other"]
        assert not plans["test"]["resources"]
    assert not plans["test"]["difference"]["compared"]
    for form in ("text", "markdown", "html"):
        assert disagg("plan", "--all", "--base", "main", "--format", form, cwd=own.project) == 2
        assert "other" in disagg.out
        assert "has a program that stops" in disagg.out


def test_the_lines_of_a_program_that_stops(own: Repository) -> None:
    """Whoever wrote the program sees its own lines, those of a file beside it too, and none of the tool's."""
    own.commit({"__main__.py": "import beside\n", "beside.py": "def call():\n    raise ValueError('no')\n\n\ncall()\n"})
    done = process("plan", "test", cwd=own.project)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the program of stack test stopped: ValueError: no, beside.py:2"
    assert "__main__.py" in done.stderr.splitlines()[0]
    assert "disagg_serving" not in done.stderr
    own.commit({"__main__.py": "def (\n"})
    done = process("plan", "test", cwd=own.project)
    assert done.stderr == "error: the program of stack test stopped: SyntaxError: invalid syntax, __main__.py:1\n"


def test_a_project_without_a_program(own: Repository, disagg: Run) -> None:
    """What is missing is named by its name, not by a place in a temporary folder."""
    own.commit({"__main__.py": None})
    assert disagg("plan", "--all", cwd=own.project) == 1
    assert disagg.err == "error: own has no program: __main__.py is missing beside Pulumi.yaml or in its `main` folder\n"


def test_a_stack_without_environment_does_not_hide_the_others(own: Repository, disagg: Run) -> None:
    """The library's own program refuses a file without environment; the other stacks have their plans."""
    own.commit({"__main__.py": "from disagg_serving.resources import deploy\n\ndeploy()\n", "Pulumi.empty.yaml": ""})
    assert disagg("plan", "--all", "--format", "json", cwd=own.project) == 2
    assert {p["stack"]: [c["id"] for c in p["checks"]] for p in json.loads(disagg.out)} == {"empty": ["program"], "test": ["program"]}


@pytest.mark.parametrize("command", [("check",), ("render", "-o", "out"), ("render", "--images"), ("verify",)])
def test_commands_that_read_an_environment(own: Repository, disagg: Run, command: tuple[str, ...]) -> None:
    """A program that makes its components itself has no environment in its stack files: what to call instead is said, not where to add it."""
    own.commit({"__main__.py": "from disagg_serving.resources import NodePools\n", "Pulumi.test.yaml": "config: {}\n"})
    name, *options = command
    assert disagg(name, "test", *options, cwd=own.project) == 1
    assert "the program of own makes its components itself; `disagg plan test` records it" in disagg.err
    own.commit({"__main__.py": "from disagg_serving.resources import deploy\n\ndeploy()\n"})
    assert disagg(name, "test", *options, cwd=own.project) == 2
    assert "disagg-serving:environment" in disagg.out + disagg.err


def test_no_stack_file_that_no_program_reads(own: Repository, disagg: Run) -> None:
    """`init` adds stacks to a project whose program reads them, and leaves another alone."""
    own.commit({"__main__.py": "from disagg_serving.resources import NodePools\n", "Pulumi.test.yaml": "config: {}\n"})
    assert disagg("init", "new", "--yes", cwd=own.project) == 1
    assert "the program of own makes its components itself and would not read the new file" in disagg.err
    assert not list(own.project.rglob("Pulumi.new.yaml"))
