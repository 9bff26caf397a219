"""The command lines that are asked about: of every stack and example, and of drawn environments, as a kubelet would start them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from disagg_serving.catalog import Model
from disagg_serving.forecast.fit.constants import batch_defaults
from disagg_serving.manifests.serving import build_leader_worker_set
from disagg_serving.planning.shapes import Group

from .build import HERE, Engine
from .configs import config_of, write_config

ADDRESS = "127.0.0.1"
VERDICTS = "verdicts.json"
_VARIABLE = re.compile(r"\$\(([A-Z_]+)\)")


@dataclass(frozen=True)
class CommandLine:
    """What one container runs: `argv` follows `vllm serve`, `env` are its plain variables.

    `step_tokens` is vLLM's own --max-num-batched-tokens for the GPU; on a CPU it takes 2048, and compares other flags with that.
    """

    name: str
    version: str
    facts: Model
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    step_tokens: int = 0

    @property
    def on_gpu(self) -> CommandLine:
        """With the default of the GPU spelt out, where a CPU's would be compared."""
        given = any(arg.startswith("--max-num-batched-tokens=") for arg in self.argv)
        return self if given else replace(self, argv=(*self.argv, f"--max-num-batched-tokens={self.step_tokens}"))


@dataclass(frozen=True)
class Verdict:
    """What an engine says of a command line: stage `ok`, or where it stopped (parse, names, config) and its words."""

    name: str
    stage: str
    reason: str

    @property
    def accepted(self) -> bool:
        """Whether it would start."""
        return self.stage == "ok"


def command_lines(name: str, groups: Iterable[Group]) -> Iterator[CommandLine]:
    """Of leaders and workers of these roles, with the variables that LeaderWorkerSet and kubelet fill in."""
    for group in groups:
        template = build_leader_worker_set(group)["spec"]["leaderWorkerTemplate"]
        for worker, key in enumerate(k for k in ("leaderTemplate", "workerTemplate") if k in template):
            container = template[key]["spec"]["containers"][0]
            known = {"LWS_GROUP_SIZE": str(template["size"]), "LWS_WORKER_INDEX": str(worker), "LWS_LEADER_ADDRESS": ADDRESS}
            env = {e["name"]: _filled(e["value"], known) for e in container["env"] if "value" in e}
            argv = tuple(_filled(a, known | env) for a in container["args"])
            version, gpu = group.served.engine.version, group.instance.gpu
            tokens = batch_defaults(gpu.memory_gib_torch, version)[0]
            yield CommandLine(f"{name}: {group.name} {key}", version, group.served.facts, argv, env, tokens)


def _filled(text: str, known: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: known.get(found[1], found[0]), text)


def ask(engine: Engine, lines: Iterable[CommandLine], folder: Path, *, config: bool = True) -> list[Verdict]:
    """The engine's verdicts; with `config` also of its cross-field checks, over the model's config.json written into `folder`.

    They are kept beside the engine: the same question to the same packages has the same answer, and loading vLLM takes half a minute.
    """
    script = (HERE / "inside/ask.py").read_bytes()
    asked = list(lines)
    keys = [sha256(script + json.dumps([line.argv, config_of(line.facts) if config else None]).encode()).hexdigest() for line in asked]
    known = _kept(engine)
    cases: list[dict[str, Any]] = [
        {"name": key, "argv": list(line.argv), "model": str(write_config(line.facts, folder)) if config else None}
        for key, line in {key: line for key, line in zip(keys, asked, strict=True) if key not in known}.items()
    ]
    if cases:
        answers = {answer["name"]: [answer["stage"], answer["reason"]] for answer in _answers(engine, cases)}
        known = _kept(engine) | answers  # another run may have asked meanwhile
        (engine.folder / VERDICTS).write_text(json.dumps(known), encoding="utf-8")
    return [Verdict(line.name, *known[key]) for key, line in zip(keys, asked, strict=True)]


def _kept(engine: Engine) -> dict[str, list[str]]:
    file = engine.folder / VERDICTS
    known: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return known


def _answers(engine: Engine, cases: list[dict[str, Any]]) -> list[dict[str, str]]:
    done = subprocess.run([engine.python, HERE / "inside/ask.py"], input=json.dumps(cases), capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"vLLM {engine.version} did not answer:\n{done.stderr[-2000:]}")
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found
