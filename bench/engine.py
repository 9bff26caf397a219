"""The real `pulumi` command over the project's own program, with a file backend and doubles of the AWS providers."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from disagg_serving.catalog import Catalog
from disagg_serving.pins import DEFAULT_ROUTER

from .build import OUT, ROOT, module_dir, tools
from .crds import crds
from .processes import GO

PASSPHRASE = "bench"  # noqa: S105 (protects nothing)
DOUBLES = {"pulumi-resource-aws": "aws", "pulumi-resource-eks": "eks", "pulumi-language-python": "language"}
REAL = {
    "pulumi": "pulumi",
    "pulumi-resource-kubernetes": "pulumi-resource-kubernetes",
    "pulumi-language-nodejs": "pulumi-language",
    "pulumi-language-go": "pulumi-language",
}
"""Programs on the engine's path, with what is built under which name."""
SHIPPED = ROOT / "tests/data/shipped"
"""The project with its stacks as they are shipped: what is proven and measured does not change with somebody's stacks/."""
WEBHOOK_TEMPLATE = "templates/webhook/webhook.yaml"


class PulumiError(RuntimeError):
    """A pulumi command that failed, with what it printed."""


@dataclass
class Step:
    """What the engine did to one resource."""

    op: str
    urn: str
    type: str
    state: dict[str, Any] = field(default_factory=dict)
    diff: dict[str, Any] = field(default_factory=dict)


@dataclass
class Engine:
    """One stack in a project of its own, copied from the repository."""

    folder: Path
    stack: str
    kubeconfig: Path
    env: dict[str, str] = field(default_factory=dict)
    program: Path | None = None
    """Folder of another program with its stack files. Default: the repository's own."""
    source: Path = SHIPPED
    """Where the repository's own is copied from."""

    def __post_init__(self) -> None:
        """Copy the project, and make the programs that the engine finds on its path."""
        self.project = self.folder / "project"
        if self.program is not None:
            shutil.copytree(self.program, self.project, ignore=shutil.ignore_patterns("node_modules", "sdks", "venv"))
        else:
            (self.project / "stacks").mkdir(parents=True)
            for name in ("Pulumi.yaml", "__main__.py"):
                shutil.copy(self.source / name, self.project / name)
            source = self.source / "stacks" / f"Pulumi.{self.stack}.yaml"
            if source.exists():
                shutil.copy(source, self.project / "stacks" / source.name)
        path = self.folder / "bin"
        path.mkdir()
        for name, built in REAL.items():
            (path / name).symlink_to(OUT / "bin" / built)
        for name, module in DOUBLES.items():
            script = path / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bench.doubles.{module} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        for name in ("state", "tmp"):
            (self.folder / name).mkdir()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "AWS_", "KUBECONFIG"))},
            "PATH": f"{path}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'components'}",
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_HOME": str(self.folder / "home"),
            # the Kubernetes provider keeps a copy of the kubeconfig there, reads it again for each chart and never removes it: in the machine's own
            # folder for temporary files somebody else may tidy it up in the middle of an update
            "TMPDIR": str(self.folder / "tmp"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "BENCH_KUBECONFIG": str(self.kubeconfig),
            **GO,
            **self.env,
        }
        self.run("stack", "init", self.stack)

    @property
    def stack_file(self) -> Path:
        """The stack's file in the copied project."""
        return self.project / ("" if self.program else "stacks") / f"Pulumi.{self.stack}.yaml"

    def run(self, *args: str, seconds: float = 300) -> str:
        """Run a pulumi command and return what it printed. Raises PulumiError."""
        done = subprocess.run(
            [str(self.folder / "bin/pulumi"), *args, "--non-interactive"],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise PulumiError(f"pulumi {' '.join(args)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def edit(self, change: Any) -> None:
        """Let `change` alter the environment mapping of the stack file."""
        data = yaml.safe_load(self.stack_file.read_text())
        change(data["config"]["disagg-serving:environment"])
        self.stack_file.write_text(yaml.safe_dump(data, sort_keys=False))

    def preview(self, *args: str) -> list[Step]:
        """Steps of a preview; resources that stay as they are count as `same`."""
        return [Step(s["op"], s["urn"], _type(s["urn"]), s.get("newState") or {}) for s in self._digest(*args)]

    def _digest(self, *args: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = json.loads(self.run("preview", "--json", "--stack", self.stack, *args))["steps"]
        return steps

    def up(self, *args: str, seconds: float = 300) -> list[Step]:
        """Steps of an update."""
        return _steps(self.run("up", "--yes", "--skip-preview", "--json", "--stack", self.stack, *args, seconds=seconds))

    def refresh(self) -> list[Step]:
        """Steps of a refresh, without running the program."""
        return _steps(self.run("refresh", "--yes", "--skip-preview", "--json", "--stack", self.stack))

    def destroy(self, seconds: float = 300) -> list[Step]:
        """Steps of a destroy, in the order in which they ended."""
        return _steps(self.run("destroy", "--yes", "--skip-preview", "--json", "--stack", self.stack, seconds=seconds))

    def resources(self) -> list[dict[str, Any]]:
        """The resources of the stack's state."""
        state: list[dict[str, Any]] = json.loads(self.run("stack", "export", "--stack", self.stack))["deployment"].get("resources") or []
        return state


def for_stack(stack: str, kubeconfig: Path, folder: Path, lws: dict[str, Any] | None = None, source: Path = SHIPPED) -> Engine:
    """The stack's project with the bench's cluster and router chart; `lws` as in the stack file, or the chart that can be installed here."""
    engine = Engine(folder, stack, kubeconfig, source=source)
    lws = lws or {"chart": str(lws_chart(folder))}

    def adapt(environment: dict[str, Any]) -> None:
        environment["lws"] = lws
        environment["router"] = {"chart": str(router_chart(folder))}
        if "existingCluster" in environment:
            environment["existingCluster"]["kubeconfig"] = str(kubeconfig)

    engine.edit(adapt)
    return engine


def lws_chart(folder: Path) -> Path:
    """The LWS chart of the module, without its webhook configurations: the API server here cannot reach a Service in the cluster."""
    (tool,) = [t for t in tools() if t.name == "lws"]
    chart, released = folder / "lws-chart", module_dir(tool.module, tool.version) / "charts/lws"
    shutil.copytree(released, chart, ignore=shutil.ignore_patterns("crds"))
    for path in [chart, *chart.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    (chart / WEBHOOK_TEMPLATE).unlink()
    (chart / "crds").mkdir()
    for one in crds(released / "crds"):
        (chart / "crds" / f"{one['metadata']['name']}.yaml").write_text(json.dumps(one))
    return chart


def router_chart(folder: Path) -> Path:
    """The chart that stands for the router's, which takes the values that the real one has and refuses all others."""
    chart = folder / "router-chart"
    shutil.copytree(Path(__file__).parent / "router_chart", chart)
    (chart / "values.schema.json").write_text(json.dumps(values_schema(Catalog().routers[DEFAULT_ROUTER].chart_values)))
    return chart


def values_schema(paths: Sequence[str]) -> dict[str, Any]:
    """A JSON Schema of a chart's values out of dotted paths; `.*` ends a free mapping. Helm itself adds `global`."""
    schema: dict[str, Any] = {"type": "object", "properties": {"global": {}}, "additionalProperties": False}
    for path in paths:
        place = schema
        for part in path.removesuffix(".*").split("."):
            place.setdefault("properties", {})
            place.setdefault("type", "object")
            place.setdefault("additionalProperties", False)
            place = place["properties"].setdefault(part, {})
        if path.endswith(".*"):
            place.update({"type": "object", "additionalProperties": True})
    return schema


def _type(urn: str) -> str:
    return urn.split("::")[2].rsplit("$", maxsplit=1)[-1]


def _steps(output: str) -> list[Step]:
    """Steps out of the engine's event stream: one JSON object a line; ended steps in order."""
    found = []
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if ended := event.get("resOutputsEvent"):
            done = ended["metadata"]
            found.append(Step(done["op"], done["urn"], done["type"], diff=done.get("detailedDiff") or {}))
    return found
