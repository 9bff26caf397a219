"""What may be a secret: the one place that judges texts, so that each is refused everywhere and shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

SECRET_NAMES = frozenset({"tokenKey", "apiKeySecret", "token_key", "api_key_secret"})
"""Fields that name a secret; somebody may have put the secret itself there."""
AWS_KEYS = ("aws:accessKey", "aws:secretKey", "aws:token")
"""Configuration of Pulumi's AWS provider that signs requests: https://www.pulumi.com/registry/packages/aws/installation-configuration/."""

_WORDS = r"(?:access_?|auth_?|hf_?)?token|password|passwd|passphrase|(?:client_?)?secret|(?:client-key|client-certificate)-data"
_WORDS += r"|(?:secret_?)?(?:api|access|account|private|signing)[_-]?key|connection_?string"
_HOLDS = re.compile(
    "|".join(
        (
            # user or user:password of an address; an image's digest stands behind an @ as well
            r"://[^/\s?#]*@",
            r"^[^/\s:@]+:[^/\s@]+@(?!sha\d+:)\S+$",
            rf"[?&](?:{_WORDS}|key|pw|sig|signature|auth|credential|x-amz-\w+)=[^&\s]",
            rf"(?<![\w-])(?:aws_)?(?:{_WORDS})=\S",
            # the same as YAML, JSON or a header, and as a flag with its value behind a blank
            rf"(?<![\w-])[\"']?(?:aws_)?(?:{_WORDS})[\"']?\s{{0,9}}:\s{{0,9}}[\"']?(?![\s\"'<$|>]|null\b)\S",
            rf"(?<!\S)--?(?!secret\s)(?:[a-z]+[_-])?(?:{_WORDS})\s+[^\s-]",  # `pulumi config set --secret NAME` is none
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY",
            # forms of Hugging Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, Google, NVIDIA, Vault, registries, JSON web tokens, HTTP
            r"\b(?!(?-i:HF_[A-Z]+)(?![A-Za-z0-9]))hf_[A-Za-z0-9]{8,}",  # HF_ENDPOINT is a variable
            r"(?<![\w-])(?:[sprk]k|gsk|whsec|dop_v1|tskey|shp(?:at|ss)|lin_api|r8|dapi|wandb_v1)[-_](?=[\w-]*\d)[\w-]{12,}",
            r"\bgh[opsur]_[A-Za-z0-9]{10,}",
            r"\bgithub_pat_\w{10,}",
            r"\bgl(?:pat|ptt|dt|rt|ft|soat|imt|agent|cbt|oas)-[\w-]{10,}",
            r"\bxox[a-z]-[\w-]{8,}",
            r"\b(?:npm|dckr_[op]at|pypi|nvapi)[-_](?=[\w-]*\d)[\w-]{12,}",
            r"\bhv[bs]\.[\w-]{12,}",
            r"(?-i:\bAIza[\w-]{20,})",
            r"(?-i:\bya29\.[\w-]{12,})",
            r"(?-i:\b(?:AKIA|ASIA)[A-Z0-9]{12,})",
            r"(?-i:(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]+)",
            r"\bBearer\s+[\w.~+/-]{8,}",
            r"\bBasic\s+(?=[\w+/]*[\d+/=A-Z])[A-Za-z0-9+/]{8,}=*(?![\w-])",
        )
    ),
    re.IGNORECASE,
)
_USER = re.compile(r"://[^/\s:]*:(?!\d+/)")
_AT = re.compile(r"@(?!sha\d+:)")
LONGEST_READ = 20_000
"""Longer texts are not looked through; nothing shows them."""


def holds_secret(text: str) -> bool:
    """Whether a text has a password, key or token in it: in an address, as a parameter, or of a known form."""
    return len(text) > LONGEST_READ or _HOLDS.search(text) is not None or ("://" in text and any(map(_has_user, text.split())))


def _has_user(word: str) -> bool:
    """Whether an address in a word has user and password, also where the password holds a slash."""
    last = max((found.start() for found in _AT.finditer(word)), default=-1)
    return last >= 0 and any(found.end() <= last for found in _USER.finditer(word))


_SECRET_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"})
_SECRET_ENDS = ("API_KEY", "ACCESS_KEY", "APIKEY", "PRIVATE_KEY", "SIGNING_KEY", "ACCOUNT_KEY")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")


def names_secret(name: str) -> bool:
    """Whether a variable, a flag or a key is named like one that holds a secret; `--max-token-...` counts tokens."""
    words = _CAMEL.sub("_", name.lstrip("-")).upper().replace("_TOKEN_", "_")
    return bool(set(words.split("_")) & _SECRET_WORDS) or words.endswith(_SECRET_ENDS)


def carries_secret(name: str, text: str) -> bool:
    """Whether a variable or flag is named like a secret, or its text has a password or token in it."""
    return names_secret(name) or holds_secret(text)


_NAME_OF_KEY = re.compile(r"(?=.*(?i:key|tok|secret|pass|cred|hf|api))(?:[a-z]+(?:[A-Z][a-z]+)*[0-9]?|[A-Za-z]+(?:[-_][A-Za-z]+)*)")
_WORD = re.compile(r"(?i:true|false|null|none|yes|no|auto)|\d{1,5}|.{0,2}")


def secrets_of(data: object) -> frozenset[str]:
    """Every text in plain data that may be a secret: by its form, by the key above it, or by the flag before it."""
    found: set[str] = set()
    waiting: list[tuple[object, bool]] = [(data, False)]
    seen = set[tuple[int, bool]]()
    while waiting:
        one, named = waiting.pop()
        if isinstance(one, (str, int, float)) and not isinstance(one, bool):
            text = str(one)
            found |= {text, *_of_flag(text)} if named or holds_secret(text) else _of_flag(text)
        elif isinstance(one, (dict, list, tuple)) and (id(one), named) not in seen:
            seen.add((id(one), named))
            waiting += _inside(one, named=named)
    return frozenset(text for text in found if not _WORD.fullmatch(text))


def _inside(one: dict[object, object] | list[object] | tuple[object, ...], *, named: bool) -> Iterator[tuple[object, bool]]:
    if isinstance(one, dict):
        for key, value in one.items():
            if key in SECRET_NAMES:
                yield value, isinstance(value, str) and not shows_name(value)
            else:
                yield key, False
                yield value, named or (isinstance(key, str) and names_secret(key))
        return
    before: object = None
    for value in one:
        yield value, named or (isinstance(before, str) and _is_secret_flag(before.strip().rstrip(":=")))
        before = value


def _is_secret_flag(text: str) -> bool:
    return text.startswith("-") and "=" not in text and names_secret(text)


_FLAGS = tuple(re.compile(rf"(?<!\S)(-[^\s{ends}]+)[\s{ends}]+") for ends in ("=", "=:"))


def _of_flag(text: str) -> set[str]:
    """What stands behind a flag that is named like a secret, after =, a colon or a blank; and the whole, which a message may repeat."""
    read = text[:LONGEST_READ]
    behind = {read[found.end() :].strip() for flags in _FLAGS for found in flags.finditer(read) if names_secret(found[1])} - {""}
    return {text, text.strip(), *behind} if behind else set()


def shows_name(text: str) -> bool:
    """Whether a text at a place that names a secret key is such a name, and not the secret itself."""
    return len(text) <= LONGEST_NAME and _NAME_OF_KEY.fullmatch(text) is not None and not holds_secret(text)


LONGEST_NAME = 40


def without(text: str, secrets: Iterable[str]) -> str:
    """A text in which no secret stands."""
    for secret in sorted(secrets, key=len, reverse=True):
        shown = " ".join(secret.split())
        for form in {secret, shown, quotable(shown, always=True)}:
            if form in text:
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])", NOT_SHOWN, text)
    return text


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


def quotable(text: str, *, always: bool = False) -> str:
    """A piece of somebody's file as a message may repeat it: cut where it is long, and not at all where it may be a secret."""
    if not always and holds_secret(text):
        return NOT_SHOWN
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
