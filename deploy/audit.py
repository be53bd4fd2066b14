"""`make audit`: pip-audit over what constraints.txt pins. `python deploy/audit.py COMMAND...` runs that command.

Exit status: 0 nothing known, 1 vulnerabilities, 2 not done (the data cannot be reached): never silently.
"""

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"


def judged(output: str, errors: str) -> tuple[int, list[str]]:
    """The exit status, and what to say: of pip-audit's report (JSON), or of its last words where it gave none."""
    try:
        dependencies = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in errors.splitlines() if line.strip()]
        why = said[-1] if said else "pip-audit said nothing"
        return 2, [f"NOT DONE: the data on vulnerabilities was not reachable: {why}"]
    lines = [
        f"{each['name']} {each['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no version'}"
        for each in dependencies
        for found in each.get("vulns", ())
    ]
    skipped = [
        f"not looked up: {each['name']}: {each['skip_reason']}" for each in dependencies if "skip_reason" in each
    ]
    if len(skipped) == len(dependencies):
        return 2, ["NOT DONE: nothing could be looked up", *skipped[:3]]
    return int(bool(lines)), [*skipped, *lines, f"{len(dependencies)} packages, {len(lines)} known vulnerabilities"]


def main(command: list[str]) -> int:
    options = ["--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json", "--timeout", "15"]
    done = subprocess.run(
        [*command, "--progress-spinner", "off", *options], capture_output=True, text=True, check=False
    )
    status, lines = judged(done.stdout, done.stderr)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
