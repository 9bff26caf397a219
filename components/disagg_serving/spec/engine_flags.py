"""Which fields become flags of the engine: a field names its flag where it is declared."""

from typing import Any, NamedTuple

from pydantic import BaseModel

from .base import model_in


class EngineFlag(NamedTuple):
    """Marks a field that becomes a flag of `vllm serve`: `Annotated[Count | None, EngineFlag("--max-num-seqs")]`.

    True makes a switch, a part with keys of its own makes JSON. Null, false and the value `unless` leave the flag out. `alike` says whether
    prefill and decode have to agree on it: if they do, a change of it makes another pair.
    """

    name: str
    unless: Any = None
    alike: bool = True


class FlagField(NamedTuple):
    """A field with its flag; `place` is the path below its spec, `weights.revision`, and `names` the same as attributes."""

    flag: EngineFlag
    place: str
    names: tuple[str, ...]

    def value_in(self, spec: Any) -> Any:
        """What the field says in a spec; None where the part that holds it is absent."""
        for name in self.names:
            spec = getattr(spec, name, None)
        return spec


def flag_fields(kind: type[BaseModel], place: str = "", names: tuple[str, ...] = ()) -> list[FlagField]:
    """The fields of a spec and of its parts that become flags, in their order; `place` and `names` lead to the spec."""
    found: list[FlagField] = []
    for name, field in kind.model_fields.items():
        here, path = f"{place}{field.alias or name}", (*names, name)
        flag = next((mark for mark in field.metadata if isinstance(mark, EngineFlag)), None)
        part = model_in(field.annotation)
        if flag is not None:
            found.append(FlagField(flag, here, path))
        elif part is not None:
            found += flag_fields(part, f"{here}.", path)
    return found
