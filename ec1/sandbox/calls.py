"""System calls that a program in the sandbox may not make, as a seccomp filter.

Belongs here: calls that get memory which no limit counts (memory files, System V segments and queues), and parts of the
kernel that no checked program needs (keys, io_uring, BPF). Does not: what namespaces and limits bound (`box.py`).

https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
"""

import errno
import platform
import struct

from ec1.errors import InputError

_X86_64 = {
    "shmget": 29, "msgget": 68, "add_key": 248, "request_key": 249, "keyctl": 250, "perf_event_open": 298,
    "memfd_create": 319, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425, "memfd_secret": 447,
}  # fmt: skip
_AARCH64 = {
    "msgget": 186, "shmget": 194, "add_key": 217, "request_key": 218, "keyctl": 219, "perf_event_open": 241,
    "memfd_create": 279, "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425, "memfd_secret": 447,
}  # fmt: skip
# The machine's number in a filter, and its calls' numbers.
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.ENOSYS, 0x7FFF0000
_X32 = 0x40000000
"""From here on x86-64 has its calls a second time, for programs with short pointers."""


def filter_program() -> bytes:
    """The filter as bubblewrap's --seccomp reads it: refused calls fail with ENOSYS, calls of another machine's kind
    end the program. Raises InputError for a machine whose numbers are not known."""
    name = platform.machine()
    if name not in _MACHINES:
        raise InputError(f"the sandbox knows no system calls of a machine of type {name}: only {', '.join(_MACHINES)}")
    number, calls = _MACHINES[name]
    steps = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, number), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    steps += [(_IF_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for call in calls.values():
        steps += [(_IF_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)
