"""Memory: how much of it this process may use, of the machine's or of what a container, pod or service is given, and
whether the kernel had to end somebody for lack of it.

psutil knows the machine's alone. Sources: https://docs.kernel.org/admin-guide/cgroup-v2.html (`memory.max`,
`memory.current`, `memory.stat`) and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GIB = 2**30


class Memory(NamedTuple):
    """In bytes."""

    free: int
    total: int


class _Files(NamedTuple):
    """How a version of control groups names its files."""

    limit: str
    used: str
    reclaimable: str
    """Of `memory.stat`: pages of files that are dropped when memory is short, as Kubernetes counts them."""


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def usable_memory(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Memory:
    """The least of what the machine and each control group around this process leave."""
    import psutil

    machine = psutil.virtual_memory()
    free, total = machine.available, machine.total
    for folder, files in _around(groups, mounted):
        try:
            limit = (folder / files.limit).read_text(encoding="utf-8").strip()
            if limit == "max" or int(limit) >= machine.total:
                continue
            stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
            used = int((folder / files.used).read_text(encoding="utf-8")) - int(stat.get(files.reclaimable, 0))
        except (OSError, ValueError):
            continue
        free, total = min(free, max(0, int(limit) - used)), min(total, int(limit))
    return Memory(free, total)


def ended_for_memory(counters: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has ended for lack of memory since the machine started, in a container or not; 0
    where it does not count them."""
    try:
        counted = dict(line.split() for line in counters.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return 0
    return int(counted.get("oom_kill", 0))


def _around(groups: Path, mounted: Path) -> Iterator[tuple[Path, _Files]]:
    """The folders of the groups that hold this process, the innermost first. In a container the outermost is its own,
    whatever path the process's group has outside."""
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, files = mounted, _V2
        elif "memory" in controllers.split(","):
            top, files = mounted / "memory", _V1
        else:
            continue
        folder = top / path.lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(top) and ".." not in each.parts:
                yield each, files
