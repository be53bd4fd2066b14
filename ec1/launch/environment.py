"""The environment of processes that train or score."""

import os
from collections.abc import Mapping

from ec1.launch.local import usable_cores
from ec1.launch.process import OFFLINE

# A step allocates and frees the same large tensors again and again. By default the C library returns each of
# them to the kernel, which then has to fill fresh pages with zeros: half of the time of a small model on a CPU.
_KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_max": 0, "trim_threshold": 2**33, "top_pad": 2**28}.items()
)


def process_environment(device: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that trains or scores: no hub is asked; on a CPU memory is kept for
    reuse, and threads that wait soon sleep."""
    own = dict(OFFLINE)
    if device == "cpu":
        own["GLIBC_TUNABLES"] = _KEEP_MEMORY
        # A thread that waits for the others spins, by default 300,000 times before it sleeps. Where others use the
        # cores too it spins on the core that the one it waits for needs: on a busy machine an evaluation of half a
        # minute then took seven. Not to spin at all (OMP_WAIT_POLICY=PASSIVE) costs a fifth on an idle one.
        # https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
        own["GOMP_SPINCOUNT"] = "30000"
        if (cores := usable_cores()) < len(os.sched_getaffinity(0)):
            # A container's share of a larger machine, which torch does not know: with a thread for each core of the
            # machine all of them are halted whenever their time is used up.
            own["OMP_NUM_THREADS"] = str(cores)
    else:
        own["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return {**own, **env}
