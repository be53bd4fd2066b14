"""Secrets: how many of gitleaks' positive cases are found, and how many alarms the standard library raises.

The cases and most rules are gitleaks' own (see `ec1/corpus/data/gitleaks.json`), so this shows that nothing of theirs
is lost, not how well unknown secrets are found. Python's standard library without its tests holds no secret: each
alarm there is a false one. Ids of tool calls, drawn at random, must raise none.
"""

import argparse
import json
import random
import string
import sysconfig
import time
from pathlib import Path

from ec1.corpus.secrets import find_secrets

_CASES = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "gitleaks_cases.json"


def main() -> dict[str, float]:
    """Print and return recall, alarms and speed."""
    known = json.loads(_CASES.read_text(encoding="utf-8"))
    texts = [text for rule in sorted(known["cases"]) for text in known["cases"][rule]]
    recall = sum(bool(find_secrets(text)) for text in texts) / len(texts)
    print(f"gitleaks {known['version']}: recall {recall:.3f} of {len(texts)} positive cases")

    root = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_bytes().decode("utf-8", "replace") for path in _sources(root)]
    started = time.process_time()
    alarms = sum(len(find_secrets(source)) for source in sources)
    speed = sum(map(len, sources)) / (time.process_time() - started) / 1e6
    print(
        f"standard library: {alarms} false alarms in {len(sources)} files, {speed:.1f} million characters a CPU second"
    )

    rng = random.Random(1)
    letters = string.ascii_letters + string.digits
    names = [prefix + "".join(rng.choices(letters, k=24)) for prefix in ("call_", "toolu_01") for _ in range(1000)]
    ids = sum(len(find_secrets(f'{{"tool_call_id": "{name}", "content": "21"}}')) for name in names)
    print(f"ids of tool calls: {ids} false alarms in {len(names)}")
    return {"recall": recall, "alarms": alarms, "id_alarms": ids, "million_characters_a_second": speed}


def _sources(root: Path) -> list[Path]:
    left_out = {"site-packages", "test", "tests"}
    return [path for path in sorted(root.rglob("*.py")) if not left_out & set(path.relative_to(root).parts)]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
