"""Asks a running instance to train recipes now: `python -m jobs.submit --url U --night D TENANT/ROLE ...`.

`ec1 submit` starts it. Through the GraphQL of the running UI, as a click there: the run comes from the workspace and
waits in the queue, and its steps in the pool. What it materialises is the night's handover and the chain of each
recipe. It is not a whole night, so it does not count as one for the schedule.
"""

import argparse
import json
import sys
from urllib.parse import urlsplit

from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

from ec1.errors import EC1Error, InputError, ServiceError
from jobs.failure import PARTITION_TAG
from resources.environment import ui_token

LOCATION, REPOSITORY = "ec1", "__repository__"
# Dagster's own job of all assets: what the UI's "Materialize selected" starts.
JOB = "__ASSET_JOB"
STEPS = ("corpus_snapshot", "threshold_check", "training_dataset", "adapter_candidate", "evaluation", "adapter")
TIMEOUT_SECONDS = 120
SUBMITTED_TAG = "ec1/submitted"
"""On every run that was asked for in this way: the recipes."""


def submit(url: str, token: str | None, night: str, recipes: list[str]) -> str:
    """Put one run for the recipes (`tenant/role`) into the instance's queue. Returns its id.

    Raises InputError for an address that is none, ServiceError if the instance refuses or does not answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is not an address such as http://127.0.0.1:3000")
    client = DagsterGraphQLClient(
        parts.hostname,
        port_number=parts.port,
        use_https=parts.scheme == "https",
        timeout=TIMEOUT_SECONDS,
        headers={"Authorization": f"Bearer {token}"} if token else None,
        path_prefix=parts.path.rstrip("/"),
    )
    chains = [[*recipe.split("/"), step] for recipe in recipes for step in STEPS]
    try:
        # It looks at the files only every few seconds.
        loaded = client.reload_repository_location(LOCATION)
        if loaded.status != ReloadRepositoryLocationStatus.SUCCESS:
            why = " ".join(str(loaded.message).split())[:500]
            raise ServiceError(f"{url} cannot load its definitions ({why}): look at it with `ec1 doctor`")
        return client.submit_job_execution(
            JOB,
            repository_location_name=LOCATION,
            repository_name=REPOSITORY,
            tags={PARTITION_TAG: night, SUBMITTED_TAG: ", ".join(recipes)},
            asset_selection=[["gpu_handover"], *chains],
        )
    except DagsterGraphQLClientError as error:
        raise ServiceError(f"{url} did not take {', '.join(recipes)}: {_why(error)}") from None


def _why(error: DagsterGraphQLClientError) -> str:
    """The client packs the cause into an exception of its own, with the whole query in its text."""
    cause = error.__cause__ or error
    code = getattr(cause, "code", None)
    if code == 401:
        return "it asks for a token: set EC1_UI_TOKEN"
    first = str(cause).strip().partition("\n")[0]
    return f"{first}; is `ec1 ui` running there, and does this deployment have the recipe?"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.submit")
    parser.add_argument("--url", required=True)
    parser.add_argument("--night", required=True)
    parser.add_argument("recipes", nargs="+")
    arguments = parser.parse_args()
    try:
        run = submit(arguments.url, ui_token(), arguments.night, arguments.recipes)
    except EC1Error as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    sys.stdout.write(json.dumps({"run": run, "night": arguments.night, "recipes": arguments.recipes}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
