"""A stream whose documents come from a source: its copies, and the rule that a source which lost much is not believed.

Belongs here: where the copies of a stream lie, and bringing them up to date. Does not: the listing of them, which is
that of any folder (`ec1.documents.scan`).
"""

from dataclasses import dataclass
from pathlib import Path

from ec1.documents.sources.copies import Brought, Copies
from ec1.documents.sources.settings import SourceSettings
from ec1.errors import PermanentError
from ec1.files import digest_of
from ec1.streams import Stream


@dataclass(frozen=True)
class Roots:
    """Where a stream's files are, and what was taken out of those that hold others."""

    files: Path
    unpacked: Path


def roots_of(folder: Path, stream: str) -> Roots:
    """Those of a stream whose documents are copied to somewhere below `folder`."""
    return Roots(folder / stream / "copies", folder / stream / "unpacked")


def bring(
    source: SourceSettings, stream: Stream, roots: Roots, *, max_bytes: int, max_vanished_share: float
) -> Brought:
    """Bring a stream's copies up to date. Raises what says that the source cannot be read now (ServiceError,
    DeferredError), and PermanentError if it lost a larger share of its documents than it may; then nothing is lost."""

    def believed(known: int, gone: int) -> None:
        if known and gone / known > max_vanished_share:
            raise PermanentError(
                f"{gone} of {known} known documents are gone from its source ({gone / known:.0%}, more than "
                f"documents.max_vanished_share {max_vanished_share:.0%}): if that is meant, set it to 1 for one night"
            )

    with Copies(roots.files) as copies:
        # Another source of the same name is another one, from its first document on.
        copies.made_by(digest_of(source.model_dump(mode="json")))
        return copies.bring(
            stream.folder,
            source.open(roots.files).items(),
            lambda name: name.lower().endswith(stream.suffixes),
            stream=stream.name,
            max_bytes=max_bytes,
            check=believed,
        )
