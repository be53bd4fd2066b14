"""Secrets: how many of gitleaks' positive cases are found, and how many alarms the standard library raises.

The cases and most rules are gitleaks' own (see `ec1/corpus/data/gitleaks.json`), so this shows that nothing of theirs
is lost, not how well unknown secrets are found. Python's standard library without its tests holds no secret: each
alarm there is a false one, as in the sources of other packages (`--sources FOLDER …`). Ids and page tokens, drawn at
random, must raise none. By context: `secret_lines.txt`, the half that patterns were made on beside the half kept apart.
"""

import argparse
import json
import random
import string
import sysconfig
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks._secret_lines import harmless_lines, secret_lines
from ec1.corpus.secrets import find_secrets

_CASES = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "gitleaks_cases.json"


def main(sources: tuple[Path, ...] = ()) -> dict[str, float]:
    """Print and return recall, alarms and speed."""
    known = json.loads(_CASES.read_text(encoding="utf-8"))
    texts = [text for rule in sorted(known["cases"]) for text in known["cases"][rule]]
    recall = sum(bool(find_secrets(text)) for text in texts) / len(texts)
    print(f"gitleaks {known['version']}: recall {recall:.3f} of {len(texts)} positive cases")
    made_on, kept_apart = (_by_context(part) for part in (False, True))
    alarms, speed = _alarms(Path(sysconfig.get_paths()["stdlib"]), "standard library")
    for folder in sources:
        _alarms(folder, folder.name)
    harmless = sum(bool(find_secrets(line)) for line in harmless_lines())
    print(f"lines that speak of secrets and hold none: {harmless} alarms in {len(harmless_lines())}")
    ids = list(id_lines())
    id_alarms = sum(bool(find_secrets(line)) for line in ids)
    print(f"ids and page tokens: {id_alarms} false alarms in {len(ids)}")
    return {
        "recall": recall,
        "recall_made_on": made_on,
        "recall_kept_apart": kept_apart,
        "alarms": alarms,
        "harmless_alarms": harmless,
        "id_alarms": id_alarms,
        "million_characters_a_second": speed,
    }


def _by_context(kept_apart: bool) -> float:
    lines = [line for line in secret_lines() if line.kept_apart is kept_apart]
    found = [line for line in lines if line.found_by(_spans)]
    name = "kept apart" if kept_apart else "patterns were made on"
    print(f"{name}: {len(found)} of {len(lines)} lines found whole ({len(found) / len(lines):.3f})")
    for context, count in sorted(Counter(line.context for line in lines).items()):
        print(f"  {context:<16} {sum(line.context == context for line in found):>3} of {count}")
    return len(found) / len(lines)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    return ((each.start, each.end) for each in find_secrets(text))


def _alarms(root: Path, name: str) -> tuple[int, float]:
    sources = [path.read_bytes().decode("utf-8", "replace") for path in _sources(root)]
    started = time.process_time()
    alarms = sum(len(find_secrets(source)) for source in sources)
    speed = sum(map(len, sources)) / (time.process_time() - started) / 1e6
    print(f"{name}: {alarms} false alarms in {len(sources)} files, {speed:.1f} million characters per CPU second")
    return alarms, speed


def id_lines() -> Iterator[str]:
    """Lines of JSON with ids and page tokens as services write them, 8,100."""
    rng = random.Random(1)
    letters, digits, hexadecimal = string.ascii_letters + string.digits, string.digits, "0123456789abcdef"
    for _ in range(1000):
        yield from (
            f'{{"tool_call_id": "call_{_drawn(rng, letters, 24)}", "content": "21"}}',
            f'{{"tool_call_id": "toolu_01{_drawn(rng, letters, 24)}", "content": "21"}}',
            f'{{"request_id": "{uuid.UUID(int=rng.getrandbits(128), version=4)}", "status": "ok"}}',
            f'{{"id": "{_drawn(rng, hexadecimal, 24)}", "name": "order"}}',
            f'{{"commit": "{_drawn(rng, hexadecimal, 40)}"}}',
            f'{{"trace_id": "{_drawn(rng, hexadecimal, 32)}", "span_id": "{_drawn(rng, hexadecimal, 16)}"}}',
            f'{{"order": {_drawn(rng, digits, 10)}, "sku": "{_drawn(rng, string.ascii_uppercase + digits, 10)}"}}',
        )
    for _ in range(110):
        for name in ("next_page_token", "nextPageToken", "pageToken", "continuation_token", "NextToken", "cursor"):
            yield f'{{"items": [], "{name}": "{_drawn(rng, letters + "-_", rng.randrange(12, 20))}"}}'
        for name in ("next_page_token", "page_token", "syncToken", "ContinuationToken"):
            yield f'{{"items": [], "{name}": "{_drawn(rng, letters, rng.randrange(8, 19))}"}}'


def _drawn(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _sources(root: Path) -> list[Path]:
    left_out = {"site-packages", "test", "tests"}
    return [path for path in sorted(root.rglob("*.py")) if not left_out & set(path.relative_to(root).parts)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, nargs="*", default=[], help="folders of other people's Python code")
    main(tuple(parser.parse_args().sources))
