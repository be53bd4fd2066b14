"""A dataset within a dataset: some sources of its training side are held out, so that settings can be chosen on them.

What is chosen on the gate's held-out side is judged too well there, and wears it out. Belongs here: the parting and the
folder. Does not: the gate's own split (`split.py`), and who chooses (`ec1.night.experiments.sweep`).

G. C. Cawley and N. L. C. Talbot, On Over-fitting in Model Selection, 2010, https://jmlr.org/papers/v11/cawley10a.html
"""

from collections import Counter
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path

from ec1.corpus.audit import audit
from ec1.corpus.dataset import Dataset, load_dataset
from ec1.corpus.dataset_tables import SIDES
from ec1.corpus.folders import CorpusFolders
from ec1.errors import DamagedError, PermanentError
from ec1.files import digest_of, staged_directory
from ec1.seals import set_aside, write_sealed

_VERSION = 1


def inner_split(dataset: Dataset, share: float, *, home: CorpusFolders) -> Dataset:
    """The training side of `dataset`, parted: whole groups with about `share` of its rows are held out.

    The same dataset is always parted alike. Raises PermanentError if it has one group only.
    """
    digest = digest_of([_VERSION, dataset.digest, share])
    place = home.datasets / digest
    try:
        return load_dataset(home, digest)
    except DamagedError:
        # Not made yet, removed as old, or damaged.
        with set_aside(place), staged_directory(place) as folder:
            _write(dataset, share, digest, folder)
    return load_dataset(home, digest)


def _write(dataset: Dataset, share: float, digest: str, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = pq.read_table(dataset.path / "train" / "rows.parquet")
    chosen = _chosen(rows["group"].to_pylist(), share)
    if not chosen:
        raise PermanentError(
            f"dataset {dataset.digest[:12]}: its training side has one source only, of which none can be held out to "
            "choose on: gather tuples of more sources, or choose on what the gate holds out (--on-held-out)"
        )
    mask = pc.is_in(rows["group"], value_set=pa.array(sorted(chosen)))
    parts = {"train": rows.filter(pc.invert(mask)), "heldout": rows.filter(mask)}
    tokens = {side: pc.sum(part["tokens"]).as_py() for side, part in parts.items()}
    for side, part in parts.items():
        (folder / side).mkdir()
        pq.write_table(part, folder / side / "rows.parquet")
    (folder / "rejects.jsonl").touch()
    # A row's column has its longest form; what a training reads of it is in proportion.
    whole = dataset.tokens / max(sum(tokens.values()), 1)
    manifest = asdict(dataset) | {
        "within": dataset.digest,
        "digest": digest,
        **{f"{side}_rows": len(parts[side]) for side in SIDES},
        **{f"{side}_groups": len(pc.unique(parts[side]["group"])) for side in SIDES},
        "tokens": round(whole * tokens["train"]),
        "heldout_tokens": round(whole * tokens["heldout"]),
        "rejected": {},
        "scrubbed": {},
        "over_length": 0,
        "leaks": [],
        "audit": asdict(audit(folder)),
    }
    del manifest["path"]
    write_sealed(folder, manifest)


def _chosen(groups: list[str], share: float) -> set[str]:
    """Groups, in an order that nothing else depends on, until they have their share; one at least, never all."""
    counts = Counter(groups)
    names = sorted(counts, key=lambda name: digest_of(["inner", name]))
    taken = sum(total <= share * len(groups) for total in accumulate(counts[name] for name in names))
    return set(names[: max(1, taken)]) if len(names) > 1 else set()
