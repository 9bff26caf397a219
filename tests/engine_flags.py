"""What the command line of every pod has to be like."""

from __future__ import annotations

from collections.abc import Sequence

from disagg_serving.catalog.flags import flags_of
from disagg_serving.planning.command_line import OWNED
from disagg_serving.planning.shapes import Group


def assert_command_line_is_ours(group: Group, args: Sequence[str]) -> None:
    """Flags of the engine's own parser, each once, and each refused in extraArgs unless it was given there or by the model's entry."""
    known, given = flags_of(group.served.engine.version), {*group.served.facts.serve_flags, *group.served.spec.extra_args}
    assert known is not None
    assert args[0] == group.served.model_argument
    names = [arg.split("=", 1)[0] for arg in args[1:]]
    assert set(names) <= known.keys()
    assert len(names) == len(set(names))
    assert {arg.split("=", 1)[0] for arg in args[1:] if arg not in given} <= OWNED.keys()
