"""A trial watches itself: an arm whose errors, refusals or feedback are worse than those of the version in use is taken
out, by a decision like a person's, and told.

Worse means: a share of bad ones that is higher with `_SIGMAS` standard errors (two proportions, pooled), among at least
`_LEAST` on either side. That is asked after every answer, so the bar is high: of 2,000 simulated trials of two equal
arms with 2,000 answers each 2 at most end by it, and an arm that fails a fifth of the time where the other fails
2 % is found after 94 answers (median) (`python -m benchmarks.canary`).

Belongs here: the comparison, and what follows. Does not: counting (`counts.py`, `capture.py`), sending users to arms
(`versions.py`).
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping

from ec1.adapters.decisions import IN_USE, ArmResult, ReleaseDecision
from ec1.adapters.registry import AdapterRegistry
from ec1.errors import EC1Error
from ec1.serving.capture import AnswerCapture, wilson
from ec1.serving.counts import ServingCounts
from ec1.serving.versions import ServedVersion

log = logging.getLogger(__name__)

WHO = "ec1 serve"
_SIGMAS = 4.0
_LEAST = 20


def is_worse(bad: int, count: int, other_bad: int, other_count: int) -> bool:
    """Whether the first share of bad ones is higher than the second beyond doubt."""
    if min(count, other_count) < _LEAST:
        return False
    pooled = (bad + other_bad) / (count + other_count)
    error = math.sqrt(pooled * (1 - pooled) * (1 / count + 1 / other_count))
    return bad / count - other_bad / other_count > _SIGMAS * error > 0


def complaint(arm: ArmResult, other: ArmResult) -> str | None:
    """What is worse about an arm than about the version in use; None if nothing is."""
    for what in ("errors", "refusals"):
        bad, other_bad = getattr(arm, what), getattr(other, what)
        if is_worse(bad, arm.answers, other_bad, other.answers):
            return f"{bad} {what} in {arm.answers} answers, the version in use {other_bad} in {other.answers}"
    count, other_count = arm.good + arm.bad, other.good + other.bad
    if is_worse(arm.bad, count, other.bad, other_count):
        return f"{arm.bad} of {count} people are not content, with the version in use {other.bad} of {other_count}"
    return None


def results(
    trial: ReleaseDecision,
    in_use: int | None,
    tenant: str,
    role: str,
    counts: ServingCounts,
    capture: AnswerCapture | None,
) -> dict[str, ArmResult]:
    """What the arms of a trial came to until now. `in_use`: the version in use."""
    found = counts.arms(tenant, role, trial.at.isoformat())
    said = {} if capture is None else {t.version.number: t for t in capture.tallies(tenant, role, trial.at.timestamp())}
    shown = {}
    for arm in trial.arms:
        number = in_use if arm == IN_USE else int(arm.removeprefix("v"))
        if number is None:
            continue
        result, tally = found.get(number, ArmResult()), said.get(number)
        if tally is not None:
            low, high = wilson(tally.good, tally.good + tally.bad) or (None, None)
            result = result.model_copy(
                update={
                    "answers": max(result.answers, tally.answers),
                    "good": tally.good,
                    "bad": tally.bad,
                    "low": low,
                    "high": high,
                }
            )
        shown[arm] = result
    return shown


class Canary:
    """Watches the trials of one gateway. `tell` is given the role's name, a title and a text."""

    def __init__(
        self,
        registry: AdapterRegistry,
        counts: ServingCounts,
        capture: AnswerCapture | None,
        tell: Callable[[str, str, str], None],
    ) -> None:
        self._registry, self._counts, self._capture, self._tell = registry, counts, capture, tell
        self._ending = threading.Lock()

    def answered(self, version: ServedVersion, trial: ReleaseDecision, *, error: bool, refusal: bool) -> None:
        """Count an answer in a trial."""
        self._counts.answered(version, trial.at.isoformat(), error=error, refusal=refusal)

    def look(self, tenant: str, role: str, trial: ReleaseDecision, in_use: int | None) -> list[str]:
        """Take the arms out that are worse than the version in use; returns their names. Asks the registry."""
        found = results(trial, in_use, tenant, role, self._counts, self._capture)
        if IN_USE not in found and in_use is not None:
            found[IN_USE] = self._counts.arms(tenant, role, trial.at.isoformat()).get(in_use, ArmResult())
        complaints = {
            arm: said
            for arm, result in found.items()
            if arm not in (IN_USE, f"v{in_use}") and (said := complaint(result, found.get(IN_USE, ArmResult())))
        }
        if not complaints:
            return []
        with self._ending:
            return self._end(tenant, role, trial, found, complaints)

    def _end(
        self,
        tenant: str,
        role: str,
        trial: ReleaseDecision,
        found: Mapping[str, ArmResult],
        complaints: Mapping[str, str],
    ) -> list[str]:
        left = {arm: weight for arm, weight in trial.arms.items() if arm not in complaints}
        reason = "; ".join(f"{arm}: {said}" for arm, said in complaints.items())
        try:
            if dict(self._registry.state(tenant, role).arms) != dict(trial.arms):
                # Another look, or a person, was faster.
                return []
            ended = set(left) <= {IN_USE}
            self._registry.end_trial(tenant, role, reason, WHO, arms={} if ended else left, result=found)
        except EC1Error as error:
            log.warning("the trial of %s/%s goes on, although %s: %s", tenant, role, reason, error)
            return []
        names = [f"{tenant}/{role}@{arm}" for arm in complaints]
        self._tell(f"{tenant}/{role}", f"EC1: {', '.join(names)} is taken out of its trial", reason)
        return names
