"""The rules of extraction in groups (`ec1.vocabulary.RuleGroup`), each of which can be switched off.

`python -m benchmarks.extraction_rules` prints F1 with and without each group; a group that does not pay goes, unless
the contract asks for it. `extraction.without_rules` switches groups off for a deployment.
"""

from typing import get_args

from ec1.vocabulary import RuleGroup

RULE_GROUPS: tuple[RuleGroup, ...] = get_args(RuleGroup)
ALL_ON: frozenset[RuleGroup] = frozenset()
"""Every function that takes `off` takes the groups that are switched off."""
