#!/usr/bin/python3
"""What runs on the GPU machine beside the inference server. Standard library only: nothing else is installed there.

`follow`    starts and ends the inference server as the instance's metadata says, and reports in its guest attributes
`pull`      brings the image, if it is not here; from Google's registries with the token of the machine's own account
`engine`    is the inference server: replaces itself with the container (ec1-engine.service)
`dead-man`  powers the machine off when nobody has asked it to stay up (ec1-dead-man.timer)
`python`    is EC1's Python, which trainings are started with by ssh: replaces itself with a container of it, which gets
            what stands behind `--`

The keys and the report are those of `ec1/machines/self_report.py`.
https://cloud.google.com/compute/docs/metadata/querying-metadata
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

METADATA = "http://169.254.169.254/computeMetadata/v1"
RUN = Path("/run/ec1")
SETTINGS = Path("/etc/ec1-machine.json")
HOST_KEYS = Path("/etc/ssh")
WORK = "/var/lib/ec1-work"
"""What trainings read and write; it outlives a stop of the machine."""
WORK_LABEL = "ec1-work"
"""Of their containers. The inference server, which comes first, ends what a crashed night left (ec1-engine.service)."""
UNIT = "ec1-engine.service"
TIMER = "ec1-dead-man.timer"
PORT = 8000
GOOGLES_REGISTRIES = ("-docker.pkg.dev", ".gcr.io")
"""Whose hosts end so, or are the second without its dot: nobody else is shown the account's token."""
POLL_SECONDS = 5.0
UNTOLD_SECONDS = 900.0
"""A machine that was told nothing since its boot stays up so long: somebody starts it by hand and looks."""
SETTLE_SECONDS = 120.0
"""After a boot nobody is too late yet."""


class Machine:
    """This machine. `settings`: `image`, the container by digest; `weights`, its folder of models; `min_free_gib`, what
    must be free on its card before anything runs there."""

    def __init__(self, metadata: str, run: Path, settings: dict[str, str]) -> None:
        self.metadata = metadata
        self.run = run
        self.settings = settings
        self.engine_id = self._remembered()
        self.cuda = self._checked()
        run.mkdir(mode=0o700, parents=True, exist_ok=True)

    def attributes(self) -> dict[str, str]:
        """The instance's own metadata. Raises OSError if the metadata server does not answer."""
        return {str(key): str(value) for key, value in self._told("attributes/?recursive=true").items()}

    def _told(self, path: str) -> dict[str, Any]:
        """What the metadata server says of this instance. Raises OSError."""
        request = urllib.request.Request(f"{self.metadata}/instance/{path}", headers={"Metadata-Flavor": "Google"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def follow(self) -> None:
        """One turn: bring the server to what is wanted, then report. Raises OSError."""
        wanted = json.loads(self.attributes().get("ec1-engine") or "null")
        if not self.cuda:
            self.cuda = self._verified()
        number = wanted["id"] if wanted else ""
        if number != self.engine_id:
            self._change(wanted, self.attributes().get("ec1-engine-key", ""))
            self.engine_id = number
        self.report()

    def pull(self) -> None:
        """Bring the image, if it is not here. Raises OSError, RuntimeError with docker's last line.

        https://cloud.google.com/artifact-registry/docs/docker/authentication#token
        """
        image = self.settings["image"]
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode == 0:
            return
        registry = image.partition("/")[0]
        # A login is written into docker's configuration: into one that is gone afterwards.
        with tempfile.TemporaryDirectory(dir=self.run) as folder:
            if f".{registry}".endswith(GOOGLES_REGISTRIES) and (token := self._token()):
                login = ["login", "--username", "oauth2accesstoken", "--password-stdin", f"https://{registry}"]
                docker(folder, login, token)
            docker(folder, ["pull", "--quiet", image])

    def _token(self) -> str:
        """Of the machine's account, for about an hour; nothing if it has none."""
        try:
            return str(self._told("service-accounts/default/token")["access_token"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return ""
            raise

    def _change(self, wanted: dict[str, Any] | None, key: str) -> None:
        path = self.run / "engine.json"
        systemctl("stop", UNIT)
        systemctl("reset-failed", UNIT)
        if wanted is None:
            path.unlink(missing_ok=True)
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump({**wanted, "key": key}, stream)
        systemctl("start", "--no-block", UNIT)

    def _remembered(self) -> str:
        try:
            return str(json.loads((self.run / "engine.json").read_text())["id"])
        except (OSError, ValueError, KeyError):
            return ""

    def _verified(self) -> str:
        """`ok`, or what is wrong with the card: a container multiplies matrices on it, once after each boot."""
        try:
            self.pull()
        except (OSError, RuntimeError) as error:
            return f"the image could not be pulled: {error}"
        command = ["docker", "run", "--rm", "--gpus", "all", self.settings["image"], "-m", "ec1.machines.cuda"]
        command += ["--min-free-gib", self.settings["min_free_gib"]]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            found = str(json.loads(done.stdout.strip().splitlines()[-1])["cuda"])
        except (ValueError, IndexError, KeyError):
            found = f"the check did not run: {last_line(done.stderr)}"
        (self.run / "cuda").write_text(found)
        return found

    def _checked(self) -> str:
        """What the check found since the boot: it cannot be made again while a server has the card."""
        try:
            return (self.run / "cuda").read_text()
        except OSError:
            return ""

    def report(self) -> None:
        """Write the report. Raises OSError."""
        device, free, total = memory()
        report = {
            "at": time.time(),
            "cuda": self.cuda,
            "engine": self._engine(),
            "engine_id": self.engine_id,
            "device": device,
            "free_gib": free,
            "total_gib": total,
            "dead_man": dead_man_state(),
            "host_keys": host_keys(),
        }
        request = urllib.request.Request(
            f"{self.metadata}/instance/guest-attributes/ec1/state",
            data=json.dumps(report).encode(),
            headers={"Metadata-Flavor": "Google"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=10).close()

    def _engine(self) -> str:
        state = systemctl("is-active", UNIT)
        if state == "failed":
            log = subprocess.run(
                ["journalctl", "--unit", UNIT, "--lines", "20", "--output", "cat"], capture_output=True, text=True
            )
            return f"failed: {last_line(log.stdout)}"
        if state == "inactive":
            # It ended with status 0 although it was wanted.
            return "failed: it ended" if self.engine_id else "off"
        return "running" if healthy() else "starting"


def docker(config: str, arguments: list[str], given: str = "") -> None:
    """Raises RuntimeError with its last line if it fails."""
    done = subprocess.run(["docker", "--config", config, *arguments], input=given, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(last_line(done.stderr))


def dead_man(metadata: str, run: Path, now: float, up: float) -> str | None:
    """Why the machine must power off now, or None. `up`: seconds since its boot.

    What was last heard counts while the metadata server does not answer.
    """
    remembered = run / "keep-until"
    try:
        told = Machine(metadata, run, {}).attributes().get("ec1-keep-until", "")
        remembered.write_text(told)
    except (OSError, ValueError):
        told = remembered.read_text() if remembered.exists() else ""
    if up < SETTLE_SECONDS:
        return None
    try:
        until = float(told)
    except ValueError:
        return f"nobody asked for it in {up:.0f} s" if up > UNTOLD_SECONDS else None
    return f"nobody has asked for it for {now - until:.0f} s" if now > until else None


def dead_man_state() -> str:
    """`armed` if the timer runs that powers the machine off, or what systemd says of it: what it reports counts only
    then, so that a machine that would run for ever is given no work."""
    state = systemctl("is-active", TIMER)
    return "armed" if state == "active" else f"{TIMER} is {state or 'unknown'}"


def memory() -> tuple[str, float, float]:
    """The card's name, and its free and total memory in GiB."""
    command = ["nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        name, free, total = (part.strip() for part in text.splitlines()[0].rsplit(",", 2))
        return name, round(float(free) / 1024, 2), round(float(total) / 1024, 2)
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return "", 0.0, 0.0


def host_keys(folder: Path = HOST_KEYS) -> list[str]:
    """Its sshd's public keys, each as `type base64`: who connects compares them."""
    texts = [path.read_text().split() for path in sorted(folder.glob("ssh_host_*_key.pub"))]
    return [" ".join(text[:2]) for text in texts if len(text) >= 2]


def healthy() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def systemctl(*arguments: str) -> str:
    """What systemctl says; its status is an answer, too."""
    return subprocess.run(["systemctl", *arguments], capture_output=True, text=True).stdout.strip()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def engine_command(settings: dict[str, str], wanted: dict[str, Any]) -> list[str]:
    """The container. The key is in its environment, where `docker ps` and the journal do not show it."""
    weights = settings["weights"]
    return [
        *("docker", "run", "--rm", "--name", "ec1-engine", "--gpus", "all", "--ipc", "host"),
        *("--publish", f"{PORT}:{PORT}", "--volume", f"{weights}:{weights}:ro"),
        *("--env", "VLLM_API_KEY", "--env", "HF_HUB_OFFLINE=1", "--env", "VLLM_NO_USAGE_STATS=1"),
        *(settings["image"], "-m", "vllm.entrypoints.openai.api_server"),
        *("--host", "0.0.0.0", "--port", str(PORT), *wanted["arguments"]),
    ]


def python_command(settings: dict[str, str], arguments: list[str], user: str) -> list[str]:
    """The container. It sees the card and the work, and no network."""
    return [
        *("docker", "run", "--rm", "--init", "--label", WORK_LABEL, "--gpus", "all", "--ipc", "host"),
        *("--network", "none", "--user", user, "--env", f"HOME={WORK}", "--volume", f"{WORK}:{WORK}"),
        *(settings["image"], *arguments),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["follow", "engine", "dead-man", "python"])
    parser.add_argument("--metadata", default=METADATA)
    parser.add_argument("--run", type=Path, default=RUN)
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:end])
    if arguments.what == "dead-man":
        up = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
        why = dead_man(arguments.metadata, arguments.run, time.time(), up)
        if why:
            sys.stderr.write(f"powering off: {why}\n")
            systemctl("poweroff")
        return 0
    settings = json.loads(arguments.settings.read_text())
    if arguments.what == "engine":
        wanted = json.loads((arguments.run / "engine.json").read_text())
        command = engine_command(settings, wanted)
        os.execvpe(command[0], command, {**os.environ, "VLLM_API_KEY": wanted["key"]})
    if arguments.what == "python":
        command = python_command(settings, given[end + 1 :], f"{os.getuid()}:{os.getgid()}")
        os.execvp(command[0], command)
    machine = Machine(arguments.metadata, arguments.run, settings)
    while True:
        try:
            machine.follow()
        except (OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
