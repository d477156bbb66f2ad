"""What makes two evaluations, and the rollouts of one, comparable."""

import json

from flywheel.config import Config
from flywheel.stages import stage


def all_settings(config: Config) -> dict[str, object]:
    """All that decides what a team sees and how it answers, beside its adapters."""
    return dict(stage("collect.rounds").round_settings(config, 0.0, [], ""))


def compared_settings(config: Config) -> dict[str, str]:
    """Those that an evaluation must share with the workspace to justify a promotion, as JSON texts.

    Where pages come from and which engine runs the base are left out: a set of questions may bring its own pages, and
    another machine may have another engine.
    """
    return {
        key: json.dumps(value, sort_keys=True)
        for key, value in all_settings(config).items()
        if key.startswith(("team.", "collect.")) or key in ("engine.max_tokens", "engine.context")
    }
