"""The tag of a Dagster run that says what became of its recipes, so that the UI's list of runs shows and filters it.

With `ec1/night-run` and `ec1/process` a run carries three tags of ours at most: more hide what they say.
"""

import dagster as dg

VERDICT_TAG = "ec1/verdict"


def tag_verdict(context: dg.AssetExecutionContext, recipe: str, verdict: str) -> None:
    """Add a recipe's verdict to the run's tag, such as `acme/crew accepted, acme/desk rejected`.

    The steps that call this queue for the GPU, so no two of a run do it at once.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    told = dict(line.split(" ", 1) for line in run.tags.get(VERDICT_TAG, "").split(", ") if line) if run else {}
    told[recipe] = verdict
    line = ", ".join(f"{name} {each}" for name, each in sorted(told.items()))
    context.instance.add_run_tags(context.run.run_id, {VERDICT_TAG: line})
