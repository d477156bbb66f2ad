"""Which adapters play in a team that is named on the command line."""

import re
from collections.abc import Iterable, Mapping

from flywheel.errors import InputError
from flywheel.records import BASE
from flywheel.workspace import ROLES

ACTIVE, CANDIDATE = "active", "candidate"


def parse_team(text: str, active: Mapping[str, str], candidate: Mapping[str, str]) -> dict[str, str]:
    """The versions, by role, that a text like `active,page_search@3,supervisor=base` means.

    Args:
        text: `base`, `active` or `candidate`, then changes to single roles; changes alone are made to `active`.

    Raises:
        InputError: for anything else.
    """
    teams: dict[str, Mapping[str, str]] = {BASE: {}, ACTIVE: active, CANDIDATE: {**active, **candidate}}
    first, *changes = [part.strip() for part in text.split(",")]
    if first not in teams:
        first, changes = ACTIVE, [first, *changes]
    versions = dict(teams[first])
    for change in changes:
        found = re.fullmatch(r"(\w+)(?:@(\d+)|=base)", change)
        if not found or found[1] not in ROLES:
            raise InputError(
                f"--team {text}: {change!r} is none of base, active, candidate, role@version and role=base "
                f"(roles are {', '.join(ROLES)})"
            )
        versions.pop(found[1], None)
        if found[2]:
            versions[found[1]] = f"{found[1]}@{int(found[2])}"
    return versions


def parse_teams(
    texts: Iterable[str], active: Mapping[str, str], candidate: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The versions of each team, by its name: what stands before a colon (`new: page_search@3`), or else its text.

    Raises:
        InputError: for no team, a name that cannot be one, and one name for two teams.
    """
    teams: dict[str, dict[str, str]] = {}
    for text in texts:
        name, colon, team = (part.strip() for part in text.rpartition(":"))
        if colon and (name in (BASE, ACTIVE, CANDIDATE) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,29}", name)):
            raise InputError(
                f"--team {text}: a name has at most 30 small letters, digits, dots and dashes, and is not {BASE}, "
                f"{ACTIVE} or {CANDIDATE}"
            )
        versions = parse_team(team, active, candidate)
        if teams.setdefault(name or team, versions) != versions:
            raise InputError(f"--team {text}: another team has this name")
    return teams


def swaps(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The new team with one role played as before, or by the base: a role that harms is seen by its being away."""
    arms: dict[str, dict[str, str]] = {}
    for role in ROLES:
        rest = {other: version for other, version in new.items() if other != role}
        if role in old and old[role] != new.get(role):
            arms[f"{role} old"] = {**rest, role: old[role]}
        if role in new:
            arms[f"{role} base"] = rest
    return arms
