"""Command lines: words of a shell script with its plain variables put in, and the engine's arguments among them. Nothing is run."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OPENING, _CLOSING = {"if", "for", "while", "until", "case"}, {"fi", "done", "esac"}
_INSTEAD = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?\+([^{}]*)\}")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^{}]*))?\}")
_KUBELET = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_SUM = re.compile(r"[\d\s()+*/%-]{1,80}")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_KEYWORDS = {"if", "then", "else", "elif", "fi", "do", "done", "exec", "nohup", "time", "sudo", "env", "&&", "||"}
SHELLS = {"sh", "bash", "dash", "zsh", "ash"}
_SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "dynamo.vllm")
_CONTAINERS = {"docker", "podman", "nerdctl"}
_RUN_SWITCHES = {"-d", "-t", "-i", "-it", "-ti", "-dit", "--rm", "--detach", "--init", "--privileged", "--tty", "--interactive", "--read-only"}


class Word(NamedTuple):
    """A word with its line, and the names of variables in it that nobody sets."""

    text: str
    line: int
    lacks: tuple[str, ...] = ()


@dataclass
class Statement:
    """A command with the variables that are set for it."""

    words: list[Word] = field(default_factory=list)
    variables: dict[str, Word] = field(default_factory=dict)


class Command(NamedTuple):
    """What follows `vllm serve`, and what a container around it says."""

    words: list[Word]
    variables: dict[str, Word]
    image: str = ""
    gpus: str = ""
    dynamo: bool = False


def statements(script: str, line: int, given: Mapping[str, str]) -> Iterator[Statement]:
    """The commands of a script, in its order; `given` are the variables of its container, to which its own assignments are added.

    What is assigned under a condition has no settled value afterwards.
    """
    known = dict(given)
    kept: dict[str, Word] = {}
    depth = 0
    for words in _Reader(script, line, known).commands():
        opened = sum(word.text in _OPENING for word in words[:1]) - sum(word.text in _CLOSING for word in words[:1])
        depth = max(depth + opened, 0)
        rest, exported = list(words), False
        while rest and (rest[0].text in _KEYWORDS or rest[0].text in {"export", "set"}):
            exported |= rest.pop(0).text == "export"
        own: dict[str, Word] = {}
        while rest and (found := _ASSIGNMENT.fullmatch(rest[0].text)):
            own[found[1]] = rest.pop(0)._replace(text=found[2])
        # an assignment without a command stays for those that follow
        settled = {name: word.text for name, word in own.items() if not rest and not word.lacks and depth == 0}
        for name in own if not rest else ():
            known.pop(name, None)
        known.update(settled)
        if not rest and exported:
            kept |= own
        yield Statement(rest, kept | own)


def expand(text: str, known: Mapping[str, str], line: int) -> Word:
    """A word of a container's args: the kubelet puts `$(NAME)` in, no shell does."""
    lacks = tuple(name for name in _KUBELET.findall(text) if name not in known)
    return Word(_KUBELET.sub(lambda found: known.get(found[1], found[0]), text), line, lacks)


def engine_commands(statement: Statement) -> Iterator[Command]:
    """The engine's arguments in a command, if it starts one: also through python and in a container."""
    words = statement.words
    texts = [word.text for word in words]
    if len(texts) > 1 and texts[0].rsplit("/", 1)[-1] in _CONTAINERS and "run" in texts[1:3]:
        yield from _in_container(statement)
        return
    for i, text in enumerate(texts):
        after = texts[i + 1] if i + 1 < len(texts) else ""
        if text.rsplit("/", 1)[-1] == "vllm" and after == "serve":
            yield Command(words[i + 2 :], statement.variables)
            return
        if text == "-m" and after in _SERVERS:
            yield Command(words[i + 2 :], statement.variables, dynamo=after == "dynamo.vllm")
            return
        if text == "-m" and after == "vllm.entrypoints.cli.main" and "serve" in texts[i + 2 : i + 3]:
            yield Command(words[i + 3 :], statement.variables)
            return
        if text.rsplit("/", 1)[-1] in SHELLS and re.fullmatch(r"-[a-z]*c", after) and i + 2 < len(texts):
            known = {name: word.text for name, word in statement.variables.items()}
            for inner in statements(texts[i + 2], words[i + 2].line, known):
                yield from engine_commands(Statement(inner.words, statement.variables | inner.variables))
            return


def _in_container(statement: Statement) -> Iterator[Command]:
    words, variables, gpus = list(statement.words), dict(statement.variables), ""
    rest = words[[word.text for word in words].index("run") + 1 :]
    while rest and rest[0].text.startswith("-"):
        option, equals, value = rest.pop(0).text.partition("=")
        if not equals and option not in _RUN_SWITCHES and rest:
            word = rest.pop(0)
            value = word.text
        if option in {"-e", "--env"} and (found := _ASSIGNMENT.fullmatch(value)):
            variables[found[1]] = Word(found[2], statement.words[0].line)
        elif option in {"-e", "--env"}:
            variables[value] = Word("", statement.words[0].line, (value,))
        elif option == "--gpus":
            gpus = value.strip("'\"")
    if not rest:
        return
    image, inner = rest[0].text, rest[1:]
    inside = next(engine_commands(Statement(inner, variables)), None)
    if inside is not None:
        yield inside._replace(image=image, gpus=gpus)
    elif "vllm" in image:
        # the image's entry point is `vllm serve`
        yield Command(inner[1:] if inner and inner[0].text == "serve" else inner, variables, image, gpus)


class _Reader:
    """Takes a script apart, sign by sign."""

    def __init__(self, script: str, line: int, known: Mapping[str, str]) -> None:
        self.script, self.line, self.known = script, line, known
        self.i, self.start, self.skipping = 0, line, False
        self.text: str | None = None
        self.lacks: list[str] = []
        self.words: list[Word] = []

    def commands(self) -> Iterator[list[Word]]:
        """Commands as lists of words; `known` may grow between two of them."""
        while self.i < len(self.script):
            sign = self.script[self.i]
            self.start = self.line if self.text is None else self.start
            if sign in "\n;|&":
                self._end()
                if self.words:
                    yield self.words
                self.words, self.skipping = [], False
                self.line += sign == "\n"
                self.i += 1
            elif sign == "#" and self.text is None:
                self.i = self._after("\n") - 1
            else:
                self._sign(sign)
        self._end()
        if self.words:
            yield self.words

    def _sign(self, sign: str) -> None:
        following = self.script[self.i + 1 : self.i + 2]
        if sign == "\\":
            self.line += following == "\n"
            self._put("" if following == "\n" and self.text is None else following.replace("\n", ""), 2)
        elif sign.isspace():
            self._end()
            self.i += 1
        elif sign in "<>":
            self.text = None if self.text and self.text.isdigit() else self.text
            self._end()
            self.skipping = True
            self.i += 1 + (following == "&")
        elif sign == "'":
            end = self._after("'", self.i + 1)
            inside = self.script[self.i + 1 : end - 1]
            self.line += inside.count("\n")
            self._put(inside, end - self.i)
        elif sign == '"':
            self._double_quoted()
        elif sign == "$":
            self._expanded()
        else:
            self._put(sign, 1)

    def _expanded(self) -> None:
        """A variable outside of quotes: blanks in it part words, and an empty one is none."""
        lacking = len(self.lacks)
        end, put = _variable(self.script, self.i, self.known, self.lacks)
        assigns = self.text is not None and _ASSIGNMENT.fullmatch(self.text) is not None
        parts = [put] if assigns or len(self.lacks) > lacking else put.split()
        for part in parts[:-1]:
            self.text = (self.text or "") + part
            self._end()
        if parts:
            self.text = (self.text or "") + parts[-1]
        self.i = end

    def _double_quoted(self) -> None:
        self._put("", 1)
        while self.i < len(self.script) and self.script[self.i] != '"':
            sign, following = self.script[self.i], self.script[self.i + 1 : self.i + 2]
            self.line += sign == "\n" or (sign == "\\" and following == "\n")
            if sign == "\\" and following and following in '"\\$`\n':
                self._put(following.replace("\n", ""), 2)
            elif sign == "$":
                end, put = _variable(self.script, self.i, self.known, self.lacks)
                self._put(put, end - self.i)
            else:
                self._put(sign, 1)
        self.i += 1

    def _put(self, text: str, step: int) -> None:
        """Add to the word, which begins here if none has; a joined line alone begins none."""
        if text or self.text is not None or self.script[self.i] != "\\":
            self.text = (self.text or "") + text
        self.i += step

    def _after(self, sign: str, start: int | None = None) -> int:
        """The place after the next such sign, or after the end."""
        found = self.script.find(sign, self.i if start is None else start)
        return len(self.script) + 1 if found < 0 else found + 1

    def _end(self) -> None:
        if self.text is not None and not self.skipping:
            self.words.append(Word(self.text, self.start, tuple(self.lacks)))
        self.text = None
        self.lacks.clear()


def _variable(script: str, i: int, known: Mapping[str, str], lacks: list[str]) -> tuple[int, str]:
    """What stands for a `$...`, and where it ends; what nobody sets stays as it is written and is named in `lacks`."""
    value: str | None
    if found := _INSTEAD.match(script, i):
        return found.end(), found[2] if known.get(found[1]) else ""
    if found := _BRACED.match(script, i):
        value = known.get(found[1], found[2])
    elif script.startswith("$((", i) and (close := script.find("))", i)) > 0:
        return close + 2, _sum(script[i + 3 : close], known, lacks)
    elif found := _KUBELET.match(script, i):
        value = known.get(found[1])
    elif script.startswith("$(", i) or script.startswith("${", i):
        close = script.find(")" if script[i + 1] == "(" else "}", i)
        end = close + 1 if close > 0 else len(script)
        lacks.append(script[i:end][:30])
        return end, script[i:end]
    elif found := _NAME.match(script, i + 1):
        value = known.get(found[0])
        if value is None:
            lacks.append(found[0])
            value = f"${found[0]}"
        return found.end(), value
    else:
        return i + 1, "$"
    if value is None:
        lacks.append(found[1])
        value = found[0]
    return found.end(), value


def _sum(text: str, known: Mapping[str, str], lacks: list[str]) -> str:
    def put(found: re.Match[str]) -> str:
        name = found[1] or found[2] or found[4]
        value = known.get(name, found[3] or "")
        if not value.isdigit():
            lacks.append(name)
            return "0"
        return value

    filled = re.sub(r"\$\{(\w+)\}|\$\{(\w+):-(\w*)\}|\$?([A-Za-z_]\w*)", put, text)
    if not _SUM.fullmatch(filled):
        lacks.append("an expression")
        return "0"
    try:
        return str(_value(ast.parse(filled.strip(), mode="eval").body))
    except (SyntaxError, ArithmeticError, ValueError, RecursionError):
        lacks.append("an expression")
        return "0"


def _value(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError
