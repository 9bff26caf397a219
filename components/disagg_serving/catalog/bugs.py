"""The form of a known bug of an engine's releases, one file a bug below engines/bugs; rule engine-bugs reads them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..spec.base import Spec, Text
from .entries import Engine, Entry, Version


class BugConditions(Spec):
    """Which models meet a bug; what is not said does not matter."""

    disaggregated: bool | None = Field(None, description="With prefill and decode, or in server mode.")
    hybrid: bool | None = Field(None, description="With several kinds of KV: sliding windows or linear attention beside full attention.")
    latent: bool | None = Field(None, description="With latent attention (MLA).")
    speculative: bool | None = Field(None, description="With speculative decoding.")
    offload: bool | None = Field(None, description="With KV offloaded to host memory.")
    mode: Literal["pull", "push"] | None = Field(None, description="Direction of the connector, of a model with prefill and decode.")
    wide_experts: bool | None = Field(None, description="With whole experts over several nodes of one engine.")
    architectures: list[Text] = Field([], description="Classes in config.json. Default: all.")
    flags: list[Text] = Field([], description="Extra flags, any of them, without value. Default: none is needed.")
    variables: list[Text] = Field([], description="Extra variables, any of them. Default: none is needed.")


class Bug(Entry):
    """A bug that releases of an engine, or of a library in its image, are known to have."""

    of: Literal["version", "nixl", "efaInstaller"] = Field(
        "version", description="Whose version decides: vLLM's, or that of a library as the engine's entry names it. Default: vLLM's."
    )
    since: Version | None = Field(None, description="First version that has it. Default: all before the fix.")
    before: Version | None = Field(None, description="First version without it. Default: none is known.")
    told_by: Literal["stalePeerFix"] | None = Field(
        None, description="Key of an engine's entry that says whether its image has the fix, whatever its version. Default: the version tells."
    )
    when: BugConditions = Field(default=BugConditions(), description="What has to hold. Default: nothing, all models meet it.")
    effect: Text = Field(..., description="What happens then, as words after the engine's name.")
    level: Literal["error", "warning", "info"] = Field("warning", description="error only where it always happens. Default: warning.")
    advice: Text = Field("", description="What to do where no other engine is at hand. Default: nothing.")

    def is_in(self, engine: Engine) -> bool:
        """Whether an engine has it. A library whose version its entry does not name is taken to be free of it."""
        if self.id in engine.fixes:
            return False
        if self.told_by is not None:
            return not engine.stale_peer_fix
        held = {"version": engine.version, "nixl": engine.nixl, "efaInstaller": engine.efa_installer}[self.of]
        if held is None:
            return False
        at = _numbers(held)
        return (self.since is None or at >= _numbers(self.since)) and (self.before is None or at < _numbers(self.before))


def _numbers(version: str) -> tuple[int, ...]:
    found = [int(part) for part in version.split(".")]
    return (*found, *[0] * (4 - len(found)))
