"""Mails as Outlook saves them, written small: compound files ([MS-CFB]) whose streams all lie in the mini stream."""

import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

SECTOR, MINI = 512, 64
FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
STORAGE, STREAM, ROOT = 1, 2, 5
Tree: TypeAlias = "Mapping[str, bytes | Tree]"


def mail_with(
    attachments: Mapping[str, bytes],
    properties: Mapping[str, bytes] | None = None,
    inner: Mapping[str, bytes] | None = None,
) -> bytes:
    """A `.msg` file with these attachments, each below 4,096 bytes ([MS-OXMSG] 2.2.2), and properties of its own, such
    as `10130102`: identifier and type. `inner`: those of a mail that is attached to it."""
    tree: Tree = {
        f"__attach_version1.0_#{number:08X}": {
            "__substg1.0_3707001F": name.encode("utf-16-le"),
            "__substg1.0_37010102": data,
        }
        for number, (name, data) in enumerate(attachments.items())
    }
    if inner is not None:
        tree = {**tree, "__attach_version1.0_#000000FF": {"__substg1.0_3701000D": _properties(inner)}}
    return compound({**tree, **_properties(properties or {})})


def _properties(values: Mapping[str, bytes]) -> Tree:
    return {f"__substg1.0_{name}": value for name, value in sorted(values.items())}


def compound(tree: Tree) -> bytes:
    """A compound file of these streams and storages by name."""
    mini, mini_fat, entries = b"", list[int](), list[list[Any]]()

    def add(tree: Tree) -> int:
        """Name, kind, next sibling, first child, first mini sector and size of each; returns the first one's number."""
        nonlocal mini, mini_fat
        before: list[Any] | None = None
        first = FREE
        for name, content in tree.items():
            number = len(entries) + 1
            entries.append([name, STORAGE, FREE, FREE, 0, 0])
            if before is None:
                first = number
            else:
                before[2] = number
            before = entries[-1]
            if isinstance(content, bytes):
                count = -(-len(content) // MINI)
                before[1:] = [STREAM, FREE, FREE, len(mini_fat), len(content)]
                mini_fat += [*range(len(mini_fat) + 1, len(mini_fat) + count), END]
                mini += content.ljust(count * MINI, b"\0")
            else:
                before[3] = add(content)
        return first

    root = ("Root Entry", ROOT, FREE, add(tree), 0, len(mini))
    directory = _sectors(b"".join(_entry(*each) for each in (root, *entries)))
    mini_table = _sectors(struct.pack(f"<{len(mini_fat)}I", *mini_fat), b"\xff")
    parts = [directory, mini_table, _sectors(mini)]
    starts, table = list[int](), [FAT]
    for part in parts:
        starts.append(len(table))
        table += [*range(len(table) + 1, len(table) + len(part) // SECTOR), END]
    assert len(table) <= SECTOR // 4, "one sector of the table is enough for a test"
    directory = _entry(*root[:4], starts[2], len(mini)) + directory[128:]
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIIII",
        *(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6),
        *(0, 1, starts[0], 0, 4096, starts[1], len(mini_table) // SECTOR, END, 0, 0),
    )
    header += struct.pack("<108I", *[FREE] * 108)
    fat = struct.pack(f"<{len(table)}I", *table).ljust(SECTOR, b"\xff")
    return header + fat + directory + b"".join(parts[1:])


def _sectors(data: bytes, filler: bytes = b"\0") -> bytes:
    return data.ljust(max(1, -(-len(data) // SECTOR)) * SECTOR, filler)


def _entry(name: str, kind: int, sibling: int, child: int, start: int, size: int) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    ids = struct.pack("<BBIII", kind, 1, FREE, sibling, child)
    return (
        encoded.ljust(64, b"\0") + struct.pack("<H", len(encoded)) + ids + bytes(36) + struct.pack("<IQ", start, size)
    )
