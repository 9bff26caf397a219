"""What a command does while it takes its time, on a terminal alone."""

from __future__ import annotations

import sys
from threading import Lock, Timer
from types import TracebackType
from typing import Self

from ..errors import visible

AFTER = 1.0
"""Seconds before anything is shown: most commands are done by then."""
CLEAR = "\r\x1b[2K"


class Progress:
    """One line on stderr about what is done now, which is gone at the end; nothing where stderr is no terminal, or not `shown`."""

    def __init__(self, *, shown: bool) -> None:
        self._on, self._lock = shown and sys.stderr.isatty(), Lock()
        self._text, self._due = "", False
        self._timer = Timer(AFTER, self._begin)
        self._timer.daemon = True

    def __call__(self, what: str) -> None:
        """Say what is done next."""
        with self._lock:
            self._text = visible(what)
            self._write()

    def __enter__(self) -> Self:
        """Start to wait."""
        if self._on:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            self._text = ""
            self._write()
            self._due = False

    def _begin(self) -> None:
        with self._lock:
            self._due = True
            self._write()

    def _write(self) -> None:
        if self._due:
            sys.stderr.write(CLEAR + self._text)
            sys.stderr.flush()
