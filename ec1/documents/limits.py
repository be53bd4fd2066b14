"""What a process that parses foreign bytes may use."""

import resource

READY = b"ready\n"
"""What a converter says when it can be asked; in its place stands a line with the reason why it cannot."""
PAGE_DONE = b" "
"""What a converter says before its answer for each page that it has read as a picture."""


def limit_process(megabytes: int) -> None:
    """Bound this process's address space; it writes no file and leaves no core."""
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
