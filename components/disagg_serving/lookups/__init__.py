"""Questions to AWS about an environment, which change nothing. Importing it without boto3 (`pip install 'disagg-serving[aws]'`) raises ToolError."""

from __future__ import annotations

from ..errors import ToolError

try:
    from .aws import ACTIONS, look_up, open_session
except ModuleNotFoundError:
    raise ToolError("look-ups need boto3, which is not installed: `make extras` in a clone, else pip install 'disagg-serving[aws]'") from None

__all__ = ["ACTIONS", "look_up", "open_session"]
