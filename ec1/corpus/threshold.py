"""The decision to train: have enough new trainable tuples gathered since the last training?

Belongs here: the decision and the high-water mark that keeps one corpus from triggering twice. Does not: counting
(snapshots) and what training does.
"""

import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ec1.corpus.folders import CorpusFolders
from ec1.corpus.snapshots import Snapshot, load_snapshot
from ec1.corpus.tombstones import removed_snapshots
from ec1.damage import damaged
from ec1.errors import DamagedError, InputError
from ec1.files import checked_name, read_json, write_json
from ec1.plural import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingDecision:
    """Whether to train, and why in words. `new` counts the trainable tuples that no training has counted yet."""

    train: bool
    reason: str
    trainable: int
    new: int
    threshold: int
    snapshot: str
    trained_snapshot: str | None
    gone: int = 0
    """Trainable tuples of the last training that are no longer there: a change like new ones."""


def decide(
    snapshot: Snapshot,
    *,
    threshold: int,
    trained: Snapshot | None,
    again: bool = False,
    by_later: str | None = None,
    changed_since: str | None = None,
) -> TrainingDecision:
    """Decide on a snapshot; `trained` is the one that was last trained on (see `HighWaterMark`), None for the first.

    `by_later` is a later night that trained on this very snapshot: a night that is made up would train the same again.
    `changed_since` is the last night that trained the role, if by another recipe.

    New is what is in the one and not in the other, line by line: tuples that were replaced by others of the same
    number are new, and tuples that vanished do not count against those that came.
    """
    new = snapshot.newer_than(trained)
    gone = 0 if trained is None else trained.newer_than(snapshot)
    vanished = f" and {gone} that {'is' if gone == 1 else 'are'} gone" if gone else ""
    came = counted(new, "new trainable tuple")
    if again and snapshot.trainable:
        train, reason = (
            True,
            f"what it was trained on was removed: trained again on {counted(snapshot.trainable, 'tuple')}",
        )
    elif snapshot.trainable == 0:
        which = f"none of {snapshot.lines} tuples is trainable" if snapshot.lines else "no tuples up to this night"
        which = "the one tuple is not trainable" if snapshot.lines == 1 else which
        train, reason = False, f"{which}; the threshold is {threshold}"
    elif by_later is not None:
        train, reason = False, f"night {by_later} was trained on the same tuples"
    elif new + gone >= max(1, threshold):
        train, reason = (
            True,
            f"{came}{vanished} {'reaches' if new + gone == 1 else 'reach'} the threshold of {threshold}"
            + ("" if changed_since is None else f": the recipe has changed since night {changed_since}"),
        )
    elif trained is not None and new + gone == 0:
        train, reason = False, "nothing new since the last training"
    else:
        since = "" if trained is None else " since the last training"
        short = threshold - new - gone
        train, reason = (
            False,
            f"{came}{vanished}{since}, {short} short of the threshold {threshold}",
        )
    return TrainingDecision(
        train=train,
        reason=reason,
        trainable=snapshot.trainable,
        new=new,
        threshold=threshold,
        snapshot=snapshot.digest,
        trained_snapshot=None if trained is None else trained.digest,
        gone=gone,
    )


def trained_snapshot(
    home: CorpusFolders, bucket: str, tenant: str, role: str, recipe: str, night: str | None = None
) -> Snapshot | None:
    """The snapshot that this recipe (its digest) was last trained on for this role, None before the first training.

    With `night` what was trained by the end of that night: one that is made up later decides as it would have then.
    """
    digest = HighWaterMark(home, tenant, role).read(before=night and day_after(night), recipe=recipe)
    return None if digest is None or digest in removed_snapshots(home) else load_snapshot(home, bucket, digest)


def day_after(night: str) -> str:
    """The night after this one."""
    return (dt.date.fromisoformat(night) + dt.timedelta(days=1)).isoformat()


def must_train_again(home: CorpusFolders, tenant: str, role: str) -> bool:
    """Whether what the role was last trained on was removed since (`ec1 forget`): it is trained again, however
    few tuples are left."""
    return HighWaterMark(home, tenant, role).read() in removed_snapshots(home)


def _entry(entry: Mapping[str, str]) -> dict[str, str]:
    """An entry of a history. Raises KeyError, TypeError or ValueError for what is none."""
    dt.date.fromisoformat(entry["night"])
    return {"digest": entry["digest"], **entry}


class HighWaterMark:
    """Which snapshot a role was last trained on, with the history of all before it, in one small JSON file."""

    def __init__(self, home: CorpusFolders, tenant: str, role: str) -> None:
        folder = home.high_water_marks / checked_name(tenant, "tenant")
        self.path = folder / f"{checked_name(role, 'role')}.json"

    def read(self, before: str | None = None, recipe: str | None = None) -> str | None:
        """The digest of the snapshot that the latest night trained on, None before the first training.

        With `before` (a night), later nights do not count: a night that is made up or repeated decides as it would
        have decided then. With `recipe` (its digest), only trainings of that recipe count: a corpus does not trigger
        the same training twice, but a changed recipe is trained separately.
        """
        entry = self.latest(before, recipe)
        return None if entry is None else entry["digest"]

    def latest(self, before: str | None = None, recipe: str | None = None) -> dict[str, str] | None:
        """The entry that `read` takes its digest from, see `history`."""
        entries = [
            entry
            for entry in self.history()
            if (before is None or entry["night"] < before) and (recipe is None or entry.get("recipe") == recipe)
        ]
        return max(entries, key=lambda entry: entry["night"]) if entries else None

    def trained_by(self, digest: str, recipe: str) -> str | None:
        """The last night that trained this recipe (its digest) on this snapshot, None if no night did."""
        nights = [each["night"] for each in self.history() if (each["digest"], each.get("recipe")) == (digest, recipe)]
        return max(nights, default=None)

    def history(self) -> list[dict[str, str]]:
        """Every advance, the oldest first: digest, night, run, recipe and the time (UTC) when it was noted."""
        if not self.path.is_file():
            return []
        try:
            history = read_json(self.path)["history"]
            if not isinstance(history, list):
                raise TypeError(history)
            return [_entry(each) for each in history]
        except (InputError, KeyError, TypeError, ValueError):
            raise DamagedError(
                f"{self.path} is damaged: the next night writes it again from the log book of trainings"
            ) from None

    def rewrite(self, history: Sequence[Mapping[str, str]]) -> None:
        """Put a history in the place of a damaged one, which is set aside as `<role>.json.damaged`."""
        damaged(log, self.path, f"{self.path} was damaged: written again from {len(history)} trainings of the log book")
        self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
        write_json(self.path, {"history": list(history)})

    def advance(self, digest: str, night: str, run: str, recipe: str = "") -> None:
        """Note that a run has trained a recipe (its digest) on a snapshot. Saying it again changes nothing."""
        history = self.history()
        entry = {"digest": digest, "night": night, "run": run, "recipe": recipe}
        if any({key: old.get(key) for key in entry} == entry for old in history):
            return
        entry["at"] = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        write_json(self.path, {"history": [*history, entry]})
