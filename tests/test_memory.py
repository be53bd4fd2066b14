"""The memory that a process may use in a container, pod or service, on trees as the kernel documents them."""

from pathlib import Path

import psutil
import pytest

from ec1.memory import GIB, ended_for_memory, usable_memory


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A mount of control groups, and the file that says which group this process is in."""
    (tmp_path / "fs").mkdir()
    return tmp_path


def group(folder: Path, *, v2: bool, limit: int | None, used: int = 0, files: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    none = "max" if v2 else str(2**63 - 4096)
    texts = (
        {"memory.max": none, "memory.current": str(used), "memory.stat": f"anon 1\ninactive_file {files}\n"}
        if v2
        else {
            "memory.limit_in_bytes": none,
            "memory.usage_in_bytes": str(used),
            "memory.stat": f"cache 1\ninactive_file 5\ntotal_inactive_file {files}\n",
        }
    )
    texts["memory.max" if v2 else "memory.limit_in_bytes"] = none if limit is None else str(limit)
    for name, text in texts.items():
        (folder / name).write_text(text)


def test_a_service_has_what_the_tightest_group_around_it_leaves(tree: Path) -> None:
    (tree / "cgroup").write_text("0::/system.slice/ec1.service\n")
    group(tree / "fs" / "system.slice" / "ec1.service", v2=True, limit=None)
    # Pages of files are given back when memory is short.
    group(tree / "fs" / "system.slice", v2=True, limit=GIB, used=GIB // 2, files=GIB // 4)
    found = usable_memory(tree / "cgroup", tree / "fs")
    assert (found.total, found.free) == (GIB, 3 * GIB // 4)


@pytest.mark.parametrize("inside", ["/", "/docker/5cda84b9"])
def test_a_container_of_the_first_version_has_its_own_limit(tree: Path, inside: str) -> None:
    """Its mount begins at its own group, while the file may name the group's path outside."""
    (tree / "cgroup").write_text(f"3:cpu,cpuacct:{inside}\n4:memory:{inside}\n0::/\n")
    group(tree / "fs" / "memory", v2=False, limit=GIB, used=2 * GIB)
    assert usable_memory(tree / "cgroup", tree / "fs") == (0, GIB)


def test_without_a_limit_it_is_the_machines(tree: Path) -> None:
    whole = psutil.virtual_memory().total
    (tree / "cgroup").write_text("4:memory:/a\n0::/../outside\n")
    group(tree / "fs" / "memory" / "a", v2=False, limit=None)
    group(tree / "outside", v2=True, limit=GIB)
    assert usable_memory(tree / "cgroup", tree / "fs").total == whole
    assert usable_memory(tree / "none", tree / "fs").total == whole


def test_what_the_kernel_ended_is_counted_where_it_counts(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 3\n")
    assert ended_for_memory(tmp_path / "vmstat") == 3
    assert ended_for_memory(tmp_path / "none") == 0
