"""After a reboot: `python -m jobs.reconcile` fails orphaned runs, frees their slots, and stops a GPU machine that
nobody uses. `ec1 doctor --reconcile`."""

import sys

from ec1.home import Home
from jobs.conclusion import stop_machine
from jobs.instance import prepare_instance, reconcile
from resources.environment import choice_from_environment


def main() -> int:
    choice = choice_from_environment()
    with prepare_instance(Home(choice.home)) as instance:
        orphans = reconcile(instance)
    if problem := stop_machine(Home(choice.home)):
        sys.stderr.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"orphaned runs ended: {', '.join(orphans) or 'none'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
