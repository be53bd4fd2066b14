"""The rules of extraction in groups, each of which can be switched off to see what it is worth.

`python -m benchmarks.extraction_rules` prints F1 with and without each group; a group that does not pay goes.
"""

from typing import Literal, get_args

RuleGroup = Literal[
    "placeholders",
    "dates",
    "numbers",
    "laws",
    "paths",
    "code",
    "common words",
    "roles",
    "legal forms",
    "titles",
    "nouns",
    "accounts and projects",
    "speakers",
    "cues",
    "nested names",
]
RULE_GROUPS: tuple[RuleGroup, ...] = get_args(RuleGroup)
ALL_ON: frozenset[RuleGroup] = frozenset()
"""Every function that takes `off` takes the groups that are switched off."""
