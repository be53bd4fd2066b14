"""`sbatch`, `squeue`, `scancel` and `sacct` on PATH: a queue in a folder, jobs that are real processes.

They take the options that `launcher: slurm` uses and refuse all others, as Slurm's do. A file `full` in the folder
leaves jobs pending; a file `away` is a controller that does not answer.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "sacct")


def install(folder: Path) -> dict[str, str]:
    """Put the commands into `folder/bin`. Returns the environment in which they are found."""
    (folder / "bin").mkdir(parents=True)
    (folder / "jobs").mkdir()
    for command in COMMANDS:
        file = folder / "bin" / command
        program = shlex.join([sys.executable, __file__, str(folder), command])
        file.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        file.chmod(0o755)
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


class Job:
    """One job; its process is the batch script."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told = json.loads(file.read_text(encoding="utf-8"))

    @property
    def state(self) -> str:
        if self.told["state"] != "RUNNING":
            return str(self.told["state"])
        if (status := self.file.with_suffix(".status")).exists():
            return "COMPLETED" if status.read_text().strip() == "0" else "FAILED"
        return "RUNNING" if Path(f"/proc/{self.told['pid']}").exists() else "NODE_FAIL"

    def set(self, state: str) -> None:
        self.file.write_text(json.dumps({**self.told, "state": state}))


def jobs(folder: Path, name: str | None = None) -> list[Job]:
    """The jobs of that name, the oldest first."""
    found = [Job(file) for file in sorted((folder / "jobs").glob("*.json"))]
    return [job for job in found if name in (None, job.told["name"])]


def sbatch(folder: Path, options: dict[str, str]) -> None:
    script = sys.stdin.read()
    assert script.startswith("#!/bin/bash\n"), "sbatch: error: This does not look like a batch script"
    number = 1001 + len(jobs(folder))
    file = folder / "jobs" / f"{number}.json"
    told = {"name": options["--job-name"], "options": options, "state": "PENDING", "pid": 0}
    if not (folder / "full").exists():
        batch = file.with_suffix(".sh")
        batch.write_text(script)
        # The shell outside writes down the status, as slurmstepd does; the job is what runs inside.
        shell = f"/bin/bash {batch} & echo $! > {batch}.pid; wait $!; echo $? > {file.with_suffix('.status')}"
        with Path(options["--output"]).open("ab") as output:
            process = subprocess.Popen(
                ["/bin/bash", "-c", shell],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        told |= {"state": "RUNNING", "pid": process.pid}
    file.write_text(json.dumps(told))
    print(number)


def squeue(folder: Path, options: dict[str, str]) -> None:
    assert options["--format"] == "%T|%r"
    for job in jobs(folder, options["--name"]):
        print(f"{job.state}|{'Resources' if job.state == 'PENDING' else 'None'}")


def scancel(folder: Path, options: dict[str, str]) -> None:
    for job in jobs(folder, options["--name"]):
        if job.state == "PENDING" and "--signal" not in options:
            job.set("CANCELLED")
        if job.state != "RUNNING" or options.get("--state") == "PENDING":
            continue
        if "--signal" in options:
            os.kill(int(job.file.with_suffix(".sh.pid").read_text()), signal.SIGTERM)
        else:
            os.killpg(job.told["pid"], signal.SIGKILL)
            job.set("CANCELLED")


def sacct(folder: Path, options: dict[str, str]) -> None:
    for job in jobs(folder, options["--name"]):
        print(job.state)


TAKEN = {
    "sbatch": "--parsable --job-name --output --open-mode --nodes --ntasks --cpus-per-task --mem --gpus --time "
    "--no-requeue --signal --partition",
    "squeue": "--me --noheader --name --states --sort --format",
    "scancel": "--me --name --state --batch --signal",
    "sacct": "--noheader --parsable2 -X --name --format",
}


def main(folder: Path, command: str, *arguments: str) -> int:
    if (folder / "away").exists():
        sys.stderr.write(f"{command}: error: Unable to contact slurm controller (connect failure)\n")
        return 1
    options = {key: value for key, _, value in (each.partition("=") for each in arguments)}
    if unknown := [each for each in options if each not in TAKEN[command].split()]:
        sys.stderr.write(f"{command}: unrecognized option '{unknown[0]}'\n")
        return 1
    if options.get("--partition", "gpu") != "gpu":
        sys.stderr.write("sbatch: error: invalid partition specified: " + options["--partition"] + "\n")
        return 1
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sacct": sacct}[command](folder, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
