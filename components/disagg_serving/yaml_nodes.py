"""YAML as nodes with their places, within limits: no file takes more than a second or much memory, whatever it holds."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from .credentials import quotable
from .yaml_scalars import PREFIX, ScalarError, value_of

MOST_NODES, DEEPEST = 50_000, 100
"""Values of a file, each alias counted as all that it repeats; Pulumi's reader has limits of the same kind for aliases."""

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = frozenset(PREFIX + name for name in ("str", "int", "float", "bool", "null", "timestamp")) | {None, "!"}
_COLLECTIONS = {yaml.SequenceStartEvent: {None, "!", f"{PREFIX}seq"}, yaml.MappingStartEvent: {None, "!", f"{PREFIX}map"}}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class YamlFaultError(ValueError):
    """What is wrong with a file, at a line and column from 1."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(problem)
        self.problem, self.line, self.column = problem, line, column


@dataclass(slots=True)
class Node:
    """A value with its place. `items` are the entries of a list, or keys and values of a mapping in turn; `merges` what a mapping takes in."""

    start: Any
    end: Any
    kind: str = "scalar"
    value: Any = None
    text: str = ""
    items: list[Node] = field(default_factory=list)
    merges: list[Node] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)
    weight: int = 1
    height: int = 0
    key: Node | None = field(default=None, repr=False)
    anchor: str | None = None

    def pairs(self) -> Iterator[tuple[Node, Node]]:
        """Keys and values of a mapping, without what it takes in."""
        return zip(self.items[::2], self.items[1::2], strict=True) if self.kind == "mapping" else iter(())

    def data(self) -> Any:
        """Plain data; what an alias repeats is one object."""
        if self.kind == "scalar":
            return self.value
        if self.value is None:
            if self.kind == "list":
                self.value = [one.data() for one in self.items]
            else:
                taken: dict[Any, Any] = {}
                for one in reversed(self.merges):
                    taken.update(one.data())
                taken.update({key.value: one.data() for key, one in self.pairs()})
                self.value = taken
        return self.value


def compose(data: bytes) -> Node | None:
    """The only document of a file, None where it is empty. Raises YamlFaultError."""
    text = _decoded(data)
    parser = _PARSER(text)
    try:
        return _Composer().run(iter(parser.get_event, None))
    except yaml.MarkedYAMLError as problem:
        raise _fault(str(problem.problem or problem.context), problem.problem_mark or problem.context_mark) from None
    finally:
        parser.dispose()


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode(encoding, "replace")
        raise YamlFaultError(f"is not {'UTF-16' if encoding == 'utf-16' else 'UTF-8'}", *_position(before)) from None
    if found := _UNPRINTABLE.search(text):
        raise YamlFaultError(f"character U+{ord(found[0]):04X} is not allowed in YAML", *_position(text[: found.start()]))
    return text


def _position(before: str) -> tuple[int, int]:
    *lines, last = _BREAK.split(before)
    return len(lines) + 1, len(last) + 1


def _fault(problem: str, mark: Any) -> YamlFaultError:
    return YamlFaultError(problem, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1)


class _Composer:
    """Takes the parser's events one after the other: nothing is built of a file beyond the limits."""

    def __init__(self) -> None:
        self.open: list[Node] = []
        self.anchors: dict[str, Node] = {}
        self.count = 0

    def run(self, events: Iterator[Any]) -> Node | None:
        """The document of a parser's events."""
        root: Node | None = None
        documents = 0
        for event in events:
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _fault("a second document begins here; one file is one document", event.start_mark)
            node = self.node(event)
            if node is not None and self.open:
                self.add(node, event)
            elif node is not None:
                root = node
        return root

    def node(self, event: Any) -> Node | None:
        """The value that is complete with an event."""
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if isinstance(event, yaml.CollectionStartEvent):
            self.start(event)
        if isinstance(event, yaml.CollectionEndEvent):
            node = self.open.pop()
            node.end = event.end_mark
            return node
        return None

    def scalar(self, event: Any) -> Node:
        if event.tag not in _SCALARS:
            raise _fault(f"{_tag(event.tag)} is not read here", event.start_mark)
        try:
            value = value_of(event.value, event.tag, plain=event.implicit[0] and not event.style)
        except ScalarError as problem:
            raise _fault(str(problem), event.start_mark) from None
        return self.known(event, Node(event.start_mark, event.end_mark, value=value, text=event.value))

    def start(self, event: Any) -> None:
        if event.tag not in _COLLECTIONS[type(event)]:
            raise _fault(f"{_tag(event.tag)} is not read here", event.start_mark)
        self.within(len(self.open) + 1, DEEPEST, "values are nested deeper than", event)
        kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
        self.open.append(self.known(event, Node(event.start_mark, event.end_mark, kind, height=1)))

    def known(self, event: Any, node: Node) -> Node:
        self.count += 1
        self.within(self.count, MOST_NODES, "the file has more values than", event)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            raise _fault(f"no value is called {quotable(event.anchor)} (an alias begins with *)", event.start_mark)
        if any(node is one for one in self.open):
            raise _fault("an alias repeats what it stands in: the value holds itself", event.start_mark)
        self.count += node.weight
        self.within(self.count, MOST_NODES, "with all that aliases repeat, the file has more values than", event)
        self.within(len(self.open) + node.height, DEEPEST, "values are nested deeper than", event)
        return node

    def within(self, count: int, most: int, what: str, event: Any) -> None:
        if count > most:
            raise _fault(f"{what} {most}", event.start_mark)

    def add(self, node: Node, event: Any) -> None:
        parent = self.open[-1]
        parent.weight += node.weight
        parent.height = max(parent.height, node.height + 1)
        if parent.kind == "list":
            parent.items.append(node)
        elif parent.key is None:
            self.add_key(parent, node, event)
        else:
            key, parent.key = parent.key, None
            if key.text == "<<" and key.kind == "scalar":
                parent.merges = self.merged(node, event)
            else:
                parent.items += (key, node)

    def add_key(self, parent: Node, key: Node, event: Any) -> None:
        if key.kind != "scalar":
            raise _fault(f"a key is a {key.kind}; only a text can be one", event.start_mark)
        if key.text in parent.names:
            raise _fault(f"key {quotable(key.text)} stands here twice", event.start_mark)
        parent.names[key.text] = parent.key = key

    def merged(self, node: Node, event: Any) -> list[Node]:
        sources = node.items if node.kind == "list" else [node]
        if any(one.kind != "mapping" for one in sources):
            raise _fault("a merge (<<) takes in what is no mapping", event.start_mark)
        return sources


def _tag(tag: str) -> str:
    return f"tag {quotable(tag.replace(PREFIX, '!!'))}"
