"""Model names: `base`, a role, or `role@version`."""

from collections.abc import Sequence

from flywheel.errors import UnknownModel
from flywheel.records import BASE
from flywheel.workspace import ROLES


def listed(adapters: Sequence[str]) -> tuple[str, ...]:
    """All names that may be asked for: the base, each role, and each version."""
    return (BASE, *dict.fromkeys(name.partition("@")[0] for name in adapters), *adapters)


def resolve_model(name: str, adapters: Sequence[str]) -> str:
    """What answers a request for `name`: one of `adapters` (`role@version`), or `base`.

    A bare role means its newest version, and the base where it has none.

    Raises:
        UnknownModel: for a version that is not loaded, or an unknown role.
    """
    if name == BASE or name in adapters:
        return name
    versions = [adapter for adapter in adapters if adapter.partition("@")[0] == name]
    if versions:
        return max(versions, key=lambda adapter: int(adapter.partition("@")[2]))
    if name in ROLES:
        return BASE
    known = ", ".join((BASE, *ROLES, *adapters))
    raise UnknownModel(f"there is no model {name!r}; there are {known}")
