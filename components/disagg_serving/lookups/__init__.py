"""Questions to AWS about an environment. It needs boto3 (`pip install 'disagg-serving[aws]'`) and changes nothing."""

from __future__ import annotations

from .aws import ACTIONS, look_up, open_session

__all__ = ["ACTIONS", "look_up", "open_session"]
