"""How several processes that do one piece of work find each other: torch's own variables
(https://docs.pytorch.org/docs/stable/distributed.html). The process of rank 0 is the one that reports and writes.
"""

from collections.abc import Mapping

from ec1.launch.local import usable_cores

RANK = "RANK"
LOST_OTHERS = 75
"""Exit status of one of several that failed and did not say why: it may be that another one is gone."""


def rank_environment(rank: int, local_rank: int, size: int, local_size: int, host: str, port: int) -> dict[str, str]:
    """The variables by which a process knows its place among `size` (`local_size` of them on this machine), and
    where rank 0 is found."""
    return {
        RANK: str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        # On a CPU they would otherwise each take all cores.
        "OMP_NUM_THREADS": str(max(1, usable_cores() // local_size)),
    }


def is_one_of_several(environment: Mapping[str, str]) -> bool:
    """Whether this process was started as one of several."""
    return RANK in environment


def leads(environment: Mapping[str, str]) -> bool:
    """Whether this process is the one, or the only one, that reports and writes."""
    return environment.get(RANK, "0") == "0"
