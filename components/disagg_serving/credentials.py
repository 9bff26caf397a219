"""What may be a secret: the one place that judges texts, so that each is refused everywhere and shown nowhere."""

from __future__ import annotations

import re

SECRET_NAMES = frozenset({"tokenKey", "apiKeySecret", "token_key", "api_key_secret"})
"""Fields that name a secret; somebody may have put the secret itself there."""
AWS_KEYS = ("aws:accessKey", "aws:secretKey", "aws:token")
"""Configuration of Pulumi's AWS provider that signs requests: https://www.pulumi.com/registry/packages/aws/installation-configuration/."""

_WORDS = r"(?:access_?|auth_?|hf_?)?token|password|passwd|(?:client_?)?secret|api[_-]?key|access_?key"
_HOLDS = re.compile(
    "|".join(
        (
            # user or user:password of an address; an image's digest stands behind an @ as well
            r"://[^/\s?#]*@",
            r"://[^/\s:]*:(?!\d+/)\S*@(?!sha\d+:)",
            r"^[^/\s:@]+:[^/\s@]+@(?!sha\d+:)\S+$",
            rf"[?&](?:{_WORDS}|key|pw|sig|signature|auth|credential|x-amz-\w+)=[^&\s]",
            rf"(?<![\w-])(?:{_WORDS})=\S",
            # forms of Hugging Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, JSON web tokens, HTTP
            r"\bhf_[A-Za-z0-9]{8,}",
            r"(?<![\w-])[sp]k[-_](?=[\w-]*\d)[\w-]{12,}",
            r"\bgh[opsur]_[A-Za-z0-9]{10,}",
            r"\bgithub_pat_\w{10,}",
            r"\bglpat-[\w-]{10,}",
            r"\bxox[a-z]-[\w-]{8,}",
            r"(?-i:\b(?:AKIA|ASIA)[A-Z0-9]{12,})",
            r"(?-i:\beyJ[\w-]{8,}\.eyJ[\w-]+)",
            r"\bBearer\s+[\w.~+/-]{8,}",
        )
    ),
    re.IGNORECASE,
)


def holds_secret(text: str) -> bool:
    """Whether a text has a password, key or token in it: in an address, as a parameter, or of a known form."""
    return _HOLDS.search(text) is not None


def withheld(value: object) -> bool:
    """Whether a value, or anything in it, may be a secret, so that no message shows it."""
    waiting, seen = [value], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if holds_secret(one):
                return True
        elif isinstance(one, (dict, list, tuple)) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.keys(), *one.values()] if isinstance(one, dict) else one
    return False


NOT_SHOWN, MOST_SHOWN = "(not shown: it may be a secret)", 80


def quotable(text: str) -> str:
    """A piece of somebody's file as a message may repeat it: cut where it is long, and not at all where it may be a secret."""
    return NOT_SHOWN if holds_secret(text) else text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
