"""Draft models: what drafts beside the model, how large it is, and where its files come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..catalog import Model
    from .shapes import Served


@dataclass(frozen=True)
class Draft:
    """A draft model. `facts` and `checkpoint_gb` are None where neither the catalogue nor the stack file says them."""

    repository: str
    revision: str | None
    facts: Model | None
    checkpoint_gb: float | None
    uri: str | None
    """Where it streams from; None where each pod downloads it."""

    @property
    def s3_prefix(self) -> str:
        """Its folder in the model's bucket: the repository, and below it the revision."""
        return f"{self.repository}/{self.revision}" if self.revision else self.repository


def draft_of(served: Served) -> Draft | None:
    """The draft model of `speculative`; None where the model drafts by itself."""
    speculative, s3 = served.spec.speculative, served.spec.weights.s3
    if speculative is None or speculative.model is None:
        return None
    facts = served.draft_facts
    size = speculative.checkpoint_gb or (facts.checkpoint_gb if facts else None)
    draft = Draft(facts.repository if facts else speculative.model, speculative.revision, facts, size, None)
    return Draft(draft.repository, draft.revision, facts, size, f"s3://{s3.bucket}/{draft.s3_prefix}") if s3 else draft


def checkpoint_gb(served: Served) -> float:
    """Decimal GB that a pod loads: the model and its draft, as far as its size is known."""
    draft = draft_of(served)
    return served.facts.checkpoint_gb + ((draft.checkpoint_gb or 0) if draft else 0)


def speculative_config(served: Served) -> dict[str, Any] | None:
    """What follows --speculative-config."""
    speculative, draft = served.spec.speculative, draft_of(served)
    if speculative is None:
        return None
    own = {"method": speculative.method, "num_speculative_tokens": speculative.num_speculative_tokens}
    if draft is None:
        return own
    # files in S3 are those of the revision already
    return {**own, "model": draft.uri or draft.repository, **({"revision": draft.revision} if draft.revision and not draft.uri else {})}


def read_folders(served: Served) -> list[str]:
    """Folders in the bucket that a model's pods may read: of all revisions, so that those of the last one go on reading."""
    draft = draft_of(served)
    return [served.s3_base, *([draft.repository] if draft else [])]


def written_folders(served: Served) -> list[str]:
    """Folders in the bucket that its mirror fills."""
    draft = draft_of(served)
    return [served.s3_prefix, *([draft.s3_prefix] if draft else [])]
