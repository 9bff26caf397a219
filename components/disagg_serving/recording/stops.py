"""What is said about a program that does not come to its end, in its own lines."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


class OfflineError(Exception):
    """What a program asks for has no answer without an engine; the text is the whole sentence."""


def reason_of(problem: Exception, root: Path) -> str:
    """What an exception says, and the last line of the program itself that led there."""
    own = [(f.filename, f.lineno) for f in _own_frames(problem, root)]
    if isinstance(problem, SyntaxError) and problem.filename:
        own = [(problem.filename, problem.lineno)]
    kind = "" if isinstance(problem, OfflineError) else f"{type(problem).__name__}: "
    text = f"{kind}{problem.msg if isinstance(problem, SyntaxError) else problem}".removesuffix(": ")
    return f"{text}, {os.path.relpath(own[-1][0], root)}:{own[-1][1]}" if own else text


def _own_frames(problem: Exception, root: Path) -> list[traceback.FrameSummary]:
    """Frames of the project's own files, without those of a virtual environment inside it, or of a checkout of this package."""
    frames = ((f, Path(f.filename)) for f in traceback.extract_tb(problem.__traceback__))
    return [f for f, file in frames if file.is_relative_to(root) and not file.is_relative_to(PACKAGE) and "site-packages" not in f.filename]


def trace_of(problem: Exception, root: Path) -> str:
    """The traceback from the program's own first line on, if it says more; how it came to be run is not its matter."""
    if isinstance(problem, OfflineError):
        return ""
    frames = traceback.extract_tb(problem.__traceback__)
    own = _own_frames(problem, root)
    start = frames.index(own[0]) if own else len(frames)
    return "".join(traceback.StackSummary.from_list(frames[start:]).format())
