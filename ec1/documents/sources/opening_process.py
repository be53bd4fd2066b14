"""The process that opens containers: `python -m ec1.documents.sources.opening_process MEGABYTES`.

It reads requests from standard input, one line of JSON each: `open` lists what a file holds, a line for each item and
one at the end; `read` gives the bytes of an item of the file that is open. `opened.py` starts it, and kills it when a
file takes too long.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ec1.documents.limits import limit_process
from ec1.documents.sources.containers import Container
from ec1.documents.sources.slack import SlackExport
from ec1.documents.sources.source import Item, Source
from ec1.errors import DeferredError, RejectedError

_NAME = 2**15
"""Characters of a name; of a longer one its end says what it is."""


def main() -> None:
    """Answer until standard input ends."""
    limit_process(int(sys.argv[1]))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    items: list[Item] = []

    def say(answer: Mapping[str, Any], data: bytes = b"") -> None:
        answers.write(json.dumps(answer).encode() + b"\n" + data)

    with ExitStack() as stack:
        while line := requests.readline():
            request = json.loads(line)
            try:
                if (wanted := request.get("open")) is not None:
                    stack.close()
                    items.clear()
                    for item in _open(wanted, stack):
                        items.append(item)
                        row = (item.name[-_NAME:], item.version, item.modified_ns, item.size)
                        say({"item": row})
                    say({"end": True})
                else:
                    data = items[request["read"]].read()
                    say({"bytes": len(data)}, data)
            except RejectedError as error:
                say({"rejected": str(error)})
            except DeferredError as error:
                say({"deferred": str(error)})
            except FileNotFoundError:
                say({"gone": True})
            except OSError as error:
                say({"deferred": f"unreadable now: {error.strerror}"})
            except MemoryError:
                say({"rejected": "it takes more memory than documents.conversion.max_memory_mb"})
            answers.flush()


def _open(wanted: dict[str, Any], stack: ExitStack) -> Iterator[Item]:
    kind, path = wanted.pop("kind"), Path(wanted.pop("path"))
    source: Source = SlackExport(path) if kind == "slack" else stack.enter_context(Container(path, **wanted))
    return source.items()


if __name__ == "__main__":
    main()
