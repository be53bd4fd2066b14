"""What faces ask of rows that a model proposed and the sandbox checked: which wait until somebody admits them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ec1.corpus.generated import REPORT, ROWS, held_rows, sample_of
from ec1.errors import InputError
from ec1.files import read_json
from ec1.queries.desk import Desk


@dataclass(frozen=True)
class Generation:
    """One generation. `report` counts what became of the proposals; `sample` is always the same few of its `rows`.
    `admitted`: they stand in the bucket."""

    role: str
    digest: str
    model: str
    report: Mapping[str, Any]
    rows: int
    sample: tuple[Mapping[str, Any], ...]
    admitted: bool


def generations(desk: Desk, sample: int = 10) -> list[Generation]:
    """All generations of a home, the newest first. Raises InputError for a damaged report."""
    folders = sorted(desk.home.generated.glob(f"*/*/{ROWS}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [_read(desk, path.parent.parent.name, path.parent.name, sample) for path in folders]


def _read(desk: Desk, role: str, digest: str, sample: int) -> Generation:
    folder = desk.home.generated / role
    rows = held_rows(folder, digest)
    try:
        report = read_json(folder / digest / REPORT)
    except FileNotFoundError:
        raise InputError(f"{folder / digest} has no {REPORT}: generate these rows again") from None
    there = desk.deployment.corpus_root(desk.home) / role / f"generated-{digest}.jsonl"
    model = str(rows[0]["metadata"]["model"]) if rows else ""
    return Generation(role, digest, model, report, len(rows), tuple(sample_of(rows, sample)), there.is_file())
