"""Writing files: whole or not at all, and never through a link that lies in a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def write_whole(path: Path, text: str, *, follow: bool = True) -> None:
    """Write beside the file and rename, so that a full disk or a kill leaves the old content.

    A link at `path` is followed only with `follow`, else it is replaced. Devices and pipes are written to as they are.
    Raises OSError with the file's name.
    """
    target = Path(os.path.realpath(path)) if follow else path
    beside = target.parent / f".{os.getpid()}.disagg-new"
    try:
        if follow and target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        beside.unlink(missing_ok=True)
        with beside.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if target.is_file() and not target.is_symlink():
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    finally:
        beside.unlink(missing_ok=True)
