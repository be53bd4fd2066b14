"""Four public sets of records with their truth, that nothing of ours was written on: people, firms and sites.

Of Splink's repository of data (github: moj-analytical-services/splink_datasets, MIT) `fake_1000`, and 1,000 people of
`historical_figures_with_errors_50k` (made of Wikidata). Of dedupe's examples (github: dedupeio/dedupe-examples, MIT)
day-care sites of Chicago (`csv_example`), and names under which firms applied for patents (`patent_example`). None is
kept here: both are folders that somebody cloned.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from ec1.graph.resolution.profile import PERSON, Profile

Read = Callable[[], tuple[list[Profile], set[tuple[str, str]], Any]]
_PEOPLE = 1_000


def public_sets(splink_data: Path | None, dedupe_examples: Path | None) -> dict[str, Read]:
    """The sets that are there, by name."""
    sets: dict[str, Read] = {}
    if splink_data is not None:
        sets["fake_1000"] = partial(fake_people, splink_data / "data" / "fake_1000.csv")
        sets["historical"] = partial(historical, splink_data / "data" / "historical_figures_with_errors_50k.parquet")
    if dedupe_examples is not None:
        sets["chicago sites"] = partial(sites, dedupe_examples / "csv_example" / "csv_example_input_with_true_ids.csv")
        sets["patent firms"] = partial(firms, dedupe_examples / "patent_example" / "patstat_reference.csv")
    return sets


def fake_people(path: Path) -> tuple[list[Profile], set[tuple[str, str]], Any]:
    """Names, birthdays, cities and addresses of e-mail."""
    rows = _read(path)
    kinds = {"birth_date": "dob", "city": "city", "email": "email"}
    return _records(rows, "cluster", _person, kinds, ("first_name", "surname", "dob", "city", "email"))


def historical(path: Path) -> tuple[list[Profile], set[tuple[str, str]], Any]:
    """Names, birthdays and places of birth, with the slips and short forms that somebody put in."""
    import pandas as pd

    frame = pd.read_parquet(path).fillna("").astype(str)
    people = sorted(set(frame["cluster"]))
    chosen = set(random.Random(1).sample(people, _PEOPLE))
    rows = _rows(frame[frame["cluster"].isin(chosen)])
    kinds = {"birth_date": "dob", "city": "birth_place", "postcode": "postcode_fake"}
    columns = ("first_name", "surname", "dob", "birth_place", "postcode_fake")
    return _records(rows, "cluster", _person, kinds, columns)


def sites(path: Path) -> tuple[list[Profile], set[tuple[str, str]], Any]:
    """Names of sites, with address and telephone."""
    rows = []
    for row in _read(path):
        number, street = _split_address(row["Address"])
        facts = {"house_number": number, "street": street, "postcode": row["Zip"], "phone": row["Phone"]}
        rows.append({"cluster": row["True Id"], "name": " ".join(row["Site name"].split()), **facts})
    kinds = {kind: kind for kind in ("house_number", "street", "postcode", "phone")}
    return _records(rows, "cluster", _thing, kinds, ("name", *kinds))


def firms(path: Path) -> tuple[list[Profile], set[tuple[str, str]], Any]:
    """Names alone, each spelling once, as a graph has them."""
    rows = {row["person_name"].lstrip("* "): row for row in reversed(_read(path))}
    named = [{"cluster": row["leuven_id"], "name": name, "begins": name[:4]} for name, row in sorted(rows.items())]
    return _records(named, "cluster", _thing, {}, ("name", "begins"))


def _records(
    rows: Sequence[Mapping[str, str]],
    truth: str,
    name_of: Callable[[Mapping[str, str]], tuple[str, str]],
    kinds: Mapping[str, str],
    columns: Iterable[str],
) -> tuple[list[Profile], set[tuple[str, str]], Any]:
    """Entities, the pairs that are one, and the frame that Splink gets. `kinds`: the column of each kind of fact."""
    import pandas as pd

    profiles, groups = [], defaultdict(list)
    for number, row in enumerate(rows):
        key = f"{number:06}"
        entity_class, name = name_of(row)
        facts = {kind: frozenset([row[column]]) for kind, column in kinds.items() if row[column]}
        profiles.append(Profile(key, entity_class, frozenset([name or "unknown"]), facts))
        groups[row[truth]].append(key)
    frame = pd.DataFrame([{column: row[column] for column in columns} for row in rows]).replace("", None)
    frame.insert(0, "rec_id", [profile.key for profile in profiles])
    return profiles, {pair for keys in groups.values() for pair in combinations(keys, 2)}, frame


def _person(row: Mapping[str, str]) -> tuple[str, str]:
    return PERSON, f"{row['first_name']} {row['surname']}".strip()


def _thing(row: Mapping[str, str]) -> tuple[str, str]:
    return "Company", row["name"]


def _split_address(address: str) -> tuple[str, str]:
    """House number and street of an American address."""
    found = re.match(r"\s*(\d*)\S*\s*(.*)", address, re.DOTALL)
    return (found[1], " ".join(found[2].split())) if found else ("", "")


def _read(path: Path) -> list[dict[str, str]]:
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return _rows(frame)


def _rows(frame: Any) -> list[dict[str, str]]:
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False)]
