"""A person in fifteen spellings, and a search for her that opens every container, written apart from the product's."""

import gzip
import io
import json
import re
import sqlite3
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from ec1.home import Home

PERSON = "Ottilie Brandt"
SPELLINGS = (
    "Ottilie Brandt",
    "OTTILIE BRANDT",
    "ottilie brandt",
    "Ottilie\nBrandt",
    "Ottilie  Brandt",
    "Ottilie\u00a0Brandt",
    "Brandt, Ottilie",
    "Brandt,Ottilie",
    "ottilie.brandt@fernhollow.example",
    "ottilie_brandt",
    "ottilie-brandt",
    "OttilieBrandt",
    "Óttilie Brandt",
    "**Ottilie** Brandt",
    "Ottilie%20Brandt",
)


def still_holding(home: Home) -> list[Path]:
    """The files of a home, but for base models, in which she can be found."""
    # What SQLite keeps beside a database goes when that is looked at: `-shm` holds no text, `-wal` is read before.
    files = [
        path
        for path in sorted(home.root.rglob("*"))
        if path.is_file() and home.models not in path.parents and not path.name.endswith("-shm")
    ]
    contents = [path.read_bytes() for path in files]
    return [path for path, data in zip(files, contents, strict=True) if any(map(names_her, _texts(data, path)))]


def names_her(text: str) -> bool:
    """Whether the letters of her name follow one another, with nothing but marks between."""
    text = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), unquote(text))
    plain = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    letters = re.sub(r"<[^<>]*>|\\[ntr]|[\W_]", "", plain).lower()
    return "ottiliebrandt" in letters or "brandtottilie" in letters


def _texts(data: bytes, path: Path) -> Iterator[str]:
    yield data.decode("utf-8", "ignore")
    yield data.decode("latin-1")
    if data.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        for row in pq.read_table(io.BytesIO(data)).to_pylist():
            yield json.dumps(row, default=str, ensure_ascii=False)
    elif data.startswith(b"SQLite"):
        with closing(sqlite3.connect(path)) as database:
            yield "\n".join(database.iterdump())
    elif data.startswith(b"\x1f\x8b"):
        yield from _texts(gzip.decompress(data), path)
    elif data.startswith(b"PK\3\4"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from _texts(archive.read(name), path)
    elif data.startswith(b"LBUG"):
        import ladybug

        with (
            ladybug.Database(path, read_only=True, buffer_pool_size=2**26) as graph,
            ladybug.Connection(graph) as asked,
        ):
            for query in ("MATCH (a) RETURN a", "MATCH ()-[a]->() RETURN a"):
                with asked.execute(query) as found:
                    yield "\n".join(map(str, found.get_all()))
