"""Runs load Jobs in a cluster and watches the engines meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import ToolError
from ..manifests.load import GENERATOR, RESULT, Run, build_load
from ..planning.shapes import Group, Layout, Served
from ..verify.connection import Connection, path_of
from ..verify.metrics import NOTHING, read_metrics
from ..verify.snapshot import Ref, Unread
from .measure import Finished
from .results import ResultError, Sample, read_result

POLL_SECONDS = 5.0
LOG_BYTES = 2**24
"""The result lists the latency of each request."""
TAIL = 5
CONFLICT = 409


@dataclass(frozen=True)
class Loader:
    """Runs of one model, each of at most so many seconds. It says how far it is to `tell`, and waits `poll` seconds between two looks."""

    connection: Connection
    layout: Layout
    served: Served
    seconds: int
    tell: Callable[[str], None]
    poll: float = POLL_SECONDS

    @property
    def _groups(self) -> list[Group]:
        return self.layout.groups_of(self.served)

    def run(self, run: Run) -> Finished:
        """Start a run, wait for its end and read its result. Raises ToolError where it fails or takes too long; its Job stays for a day."""
        *policies, job = build_load(run, self.served, self._groups, self.layout.spec, self.seconds)
        try:
            for made in (*policies, job):
                self._create(made)
            samples = self._wait(Ref.of(job))
            text = self._log(Ref.of(job), RESULT)
        finally:
            for made in policies:
                self.connection.ask("DELETE", path_of(Ref.of(made)))
        try:
            return Finished(run, read_result(text), samples)
        except ResultError as problem:
            raise ToolError(f"{Ref.of(job)}: {problem}") from None

    def _create(self, made: dict[str, Any]) -> None:
        ref = Ref.of(made)
        reply = self.connection.ask("POST", path_of(Ref(ref.api_version, ref.kind, ref.namespace)), body=made)
        if not reply.ok and (reply.status != CONFLICT or ref.kind == "Job"):
            raise ToolError(f"{ref} cannot be made: {' '.join(reply.text.split())[:300]}")

    def _wait(self, job: Ref) -> list[Sample]:
        end, samples = time.monotonic() + self.seconds, list[Sample]()
        while time.monotonic() < end:
            found = self.connection.read(path_of(job))
            if not isinstance(found, dict):
                raise ToolError(f"{job} is gone" if found is None else f"{job}: {found.reason}")
            done = {c["type"] for c in found.get("status", {}).get("conditions") or [] if c["status"] == "True"}
            if "Complete" in done:
                return samples
            if "Failed" in done:
                raise ToolError(f"{job} failed; the end of its log: {self._tail(job)}")
            sample = self._sample()
            if sample is not None:
                samples.append(sample)
            self.tell(f"{job.name}: running, {len(samples)} looks at the engines")
            time.sleep(self.poll)
        self.connection.ask("DELETE", path_of(job), {"propagationPolicy": "Background"})
        raise ToolError(f"{job} did not end within {self.seconds} s and was removed; give it more with --timeout")

    def _sample(self) -> Sample | None:
        """What the engines do now; None where one of them could not be asked, since a sum without it would mislead."""
        sums = {"prefill": NOTHING, "decode": NOTHING, "server": NOTHING}
        for group in self._groups:
            for leader, *_ in group.pods():
                text = self.connection.get(group.namespace, leader, group.engine_port, "/metrics")
                if isinstance(text, Unread):
                    return None
                try:
                    sums[group.role] += read_metrics(text)
                except ValueError:
                    return None
        return Sample(sums["prefill"], sums["decode"])

    def _pod(self, job: Ref) -> str:
        found = self.connection.read(path_of(Ref("v1", "Pod", job.namespace)), {"labelSelector": f"job-name={job.name}"})
        if not isinstance(found, dict) or not found["items"]:
            raise ToolError(f"{job} has no pod, so no log")
        return str(found["items"][0]["metadata"]["name"])

    def _log(self, job: Ref, container: str) -> str:
        text = self.connection.log(job.namespace, self._pod(job), container, LOG_BYTES)
        if isinstance(text, Unread):
            raise ToolError(f"{job}: {text.reason}")
        return text

    def _tail(self, job: Ref) -> str:
        try:
            return " | ".join(self._log(job, GENERATOR).splitlines()[-TAIL:]) or "it is empty"
        except ToolError as problem:
            return f"not readable ({problem})"
