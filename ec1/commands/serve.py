"""`ec1 serve`: the adapters in use behind an OpenAI-compatible address, their API keys, and trials of two versions."""

from typing import Annotated

import typer

from ec1.commands.shell import Options, err, out, print_json
from ec1.errors import InputError
from ec1.who import who_acts

serve_app = typer.Typer(
    help="Serve the adapters in use, OpenAI-compatible; names are tenant/role and tenant/role@vN.",
    invoke_without_command=True,
)
key_app = typer.Typer(help="API keys of the gateway.", no_args_is_help=True)
serve_app.add_typer(key_app, name="key")


@serve_app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="default: the deployment's, 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="default: the deployment's; 0: any")] = None,
) -> None:
    """Serve the deployment's base model and every adapter of it, until Ctrl-C.

    A promotion, rollback or withdrawal counts within seconds, with no restart. On the night's own card serving gives
    way when a night asks for it, and comes back after it.
    """
    if context.invoked_subcommand is not None:
        return
    # Imported here: these load libraries that the other commands do without.
    from ec1.serving.server import serve as run

    options: Options = context.obj
    deployment = options.deployment()
    run(
        deployment,
        options.home,
        options.environment,
        host=host or deployment.serving.host,
        port=deployment.serving.port if port is None else port,
        progress=err.print,
    )


@serve_app.command("split")
def split(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="tenant/role")],
    arms: Annotated[list[str] | None, typer.Argument(help="in-use=90 v4=10; none: end the trial")] = None,
    reason: Annotated[str, typer.Option(help="why, for whoever asks later")] = "",
) -> None:
    """Let several versions of a role answer by weights; a user keeps the version that he got."""
    from ec1.night.stores import open_registry
    from ec1.serving.server import trial_results

    options: Options = context.obj
    tenant, name = _role(role)
    deployment = options.deployment()
    registry = open_registry(deployment, options.home)
    if not arms:
        came_to = trial_results(deployment, options.home, registry, tenant, name)
        registry.end_trial(tenant, name, reason, who_acts(), result=came_to)
        out.print(f"{role}: the version in use answers everything")
        return
    weights = {arm: weight for arm, _, weight in (each.partition("=") for each in arms)}
    if len(weights) < len(arms):
        raise InputError("an arm is named twice: write each once, such as in-use=90 v4=10")
    if wrong := [arm for arm, weight in weights.items() if not weight.isascii() or not weight.isdecimal()]:
        raise InputError(f"{wrong[0]} has no weight: write it as {wrong[0]}=10")
    shares = {arm: int(weight) for arm, weight in weights.items()}
    registry.start_trial(tenant, name, shares, reason, who_acts())
    out.print(f"{role}: {', '.join(f'{arm} {weight}' for arm, weight in shares.items())}")


@serve_app.command("results")
def results(
    context: typer.Context,
    role: Annotated[str, typer.Argument(help="tenant/role")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """What people said about each version: answers kept, and the share of those content with its 95 % interval."""
    from ec1.serving.server import open_capture

    options: Options = context.obj
    capture = open_capture(options.deployment(), options.home)
    try:
        tallies = capture.tallies(*_role(role))
    finally:
        capture.close()
    rows = [
        {
            "version": each.version.name,
            "answers": each.answers,
            "good": each.good,
            "bad": each.bad,
            "good_share_95": each.interval(),
        }
        for each in tallies
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print(f"no answer of {role} was kept")
    for each in tallies:
        interval = each.interval()
        said = f"{each.good} of {each.good + each.bad} people content" if interval else "no feedback"
        share = f" [{interval[0]:.0%}, {interval[1]:.0%}]" if interval else ""
        out.print(f"{each.version.name:<40} {each.answers:>6} answers  {said}{share}")


@serve_app.command("litellm-config")
def litellm_config(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="where it reaches this gateway; default: the deployment's")] = None,
) -> None:
    """Print a configuration (JSON, which is YAML) for a LiteLLM proxy in front of this gateway.

    One model for the base and one for each role; it finds the gateway's API key in EC1_API_KEY. LiteLLM is not part of
    EC1: run it in an environment of its own.
    """
    from ec1.night.stores import open_registry
    from ec1.serving.server import build_versions

    options: Options = context.obj
    deployment = options.deployment()
    versions = build_versions(deployment, open_registry(deployment, options.home))
    base = url or f"http://{deployment.serving.host}:{deployment.serving.port}"
    to = {"api_base": f"{base.rstrip('/')}/v1", "api_key": "os.environ/EC1_API_KEY"}
    names = [name for name in versions.listed() if "@" not in name]
    models = [{"model_name": name, "litellm_params": {"model": f"openai/{name}", **to}} for name in names]
    print_json({"model_list": models})


def _role(role: str) -> tuple[str, str]:
    """Parse `tenant/role`. Raises InputError."""
    from ec1.serving.versions import parse_name

    parsed = parse_name(role)
    if parsed is None or parsed[2] is not None:
        raise InputError(f"{role!r} is not a role: write tenant/role")
    return parsed[0], parsed[1]


@key_app.command("add")
def key_add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="whose key it is")],
    tenant: Annotated[list[str] | None, typer.Option(help="only for this tenant; may be repeated")] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="requests at once")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=1, help="of prompts and answers, by UTC's day")] = None,
) -> None:
    """Make a key and print it, once; only its digest is kept. With a key every request needs one."""
    from ec1.serving.keys import KeyLimits
    from ec1.serving.server import keys_of

    options: Options = context.obj
    limits = KeyLimits(at_once=at_once, requests_per_minute=requests_per_minute, tokens_per_day=tokens_per_day)
    out.print(keys_of(options.home).add(name, tuple(tenant or ()), limits))


@key_app.command("list")
def key_list(context: typer.Context) -> None:
    """All keys, with their limits and what they used today (UTC)."""
    from ec1.serving.server import keys_of, open_counts

    options: Options = context.obj
    keys = keys_of(options.home).all()
    if not keys:
        return
    counts = open_counts(options.home)
    for key in keys:
        requests, tokens = counts.used_today(key.name)
        limits = ", ".join(f"{what} {most}" for what, most in key.limits.model_dump(exclude_none=True).items())
        whom = ", ".join(key.tenants) or "all tenants"
        out.print(f"{key.name}  {whom}; {limits or 'no limits'}; today {requests} requests, {tokens} tokens")
    counts.close()


@key_app.command("remove")
def key_remove(context: typer.Context, name: Annotated[str, typer.Argument(help="whose key it is")]) -> None:
    """A key stops working at once."""
    from ec1.serving.server import keys_of

    options: Options = context.obj
    keys_of(options.home).remove(name)
    out.print(f"{name} is removed")
