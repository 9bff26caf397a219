"""What no text of a stack file or a catalogue entry holds: characters that nobody sees, or takes for others."""

from __future__ import annotations

from ..characters import foreign_in, hidden_in, lookalike_in
from ..credentials import withheld
from ..errors import Finding, Level
from ..place import Place, Step

_PROSE = frozenset(
    {"tags", "accept", "reason", "extraEnv", "extra_env", "extraArgs", "extra_args", "notes", "source", "meaning", "description", "text"}
)
"""Keys below which texts may have lines, and letters of any script."""
_PATHS = frozenset({"catalogDirs", "catalog_dirs", "model", "kubeconfig"})
"""Keys of paths, which may have letters of any script."""


def odd_characters(loc: tuple[Step, ...], value: str) -> Finding | None:
    """What nobody sees in a text, or takes for something else; names and addresses are of ASCII."""
    prose = not _PROSE.isdisjoint(loc)
    found, what, allowed = hidden_in(value, lines=prose), "a character that controls or hides", "characters that are seen"
    if not found and prose | (not _PATHS.isdisjoint(loc)):
        found, what, allowed = lookalike_in(value), "a letter that looks like one of another script", "one script in a word"
    elif not found:
        found, what, allowed = foreign_in(value), "a character that is not ASCII and may look like another", "ASCII"
    shown = None if withheld(value) else value
    return Finding("characters", Level.ERROR, str(Place(loc)), f"holds {found}, {what}", shown, allowed, "remove it") if found else None
