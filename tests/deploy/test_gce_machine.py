"""What runs on the GPU machine: the real program and units, a metadata server on loopback, stand-ins for the system."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from loopback_server import serving

from ec1.machines import cuda
from ec1.machines.self_report import ARMED, ENGINE, ENGINE_KEY, KEEP_UNTIL, Report, read_report

GCE = Path(__file__).resolve().parents[2] / "deploy" / "gce"
IMAGE = "us-docker.pkg.dev/acme/ec1/ec1-gpu@sha256:" + "a" * 64
SECRET = "k3y-of-this-night"
PROGRAMS = {
    "nvidia-smi": "echo 'NVIDIA L4, 22016, 23034'",
    "docker": """echo "$@" >> "$STATE/docker.log"; env | grep VLLM_API_KEY >> "$STATE/environment"
case "$*" in
  "image inspect "*) test ! -e "$STATE/absent";;
  *" login "*) cat > "$STATE/password"; cp "$STATE/password" "$2/config.json";;
  *" pull "*) test -e "$2/config.json" || { echo 'denied: Unauthenticated request' >&2; exit 1; }; rm "$STATE/absent";;
  *ec1.machines.cuda*) echo '{"cuda": "ok"}';;
esac""",
    # The state of the one unit, as `is-active` says it.
    "systemctl": """echo "$@" >> "$STATE/systemctl.log"
case "$1" in
  start) echo active > "$STATE/unit";;
  stop|reset-failed) echo inactive > "$STATE/unit";;
  is-active) if [ "$2" = ec1-dead-man.timer ]; then cat "$STATE/timer" 2>/dev/null || echo active
    else cat "$STATE/unit" 2>/dev/null || echo inactive; fi;;
esac""",
    "journalctl": "echo 'loading'; echo 'ValueError: no room for the KV cache'",
}


class Cloud:
    """The metadata server of one machine, and the stand-ins that its program calls."""

    def __init__(self, address: str, folder: Path) -> None:
        self.metadata: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.token = ""
        self.answers = True
        self.address = address
        self.folder = folder
        self.run = folder / "run"
        for name, body in PROGRAMS.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        self.settings = folder / "settings.json"
        self.settings.write_text(json.dumps({"image": IMAGE, "weights": "/data/weights", "min_free_gib": "21"}))

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "STATE": str(self.folder)}

    def said(self, program: str) -> str:
        """How a stand-in was called."""
        log = self.folder / f"{program}.log"
        return log.read_text() if log.exists() else ""

    def start(self, what: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(GCE / "machine.py"), what, "--metadata", self.address, "--run", str(self.run)]
        return subprocess.Popen(
            [*command, "--settings", str(self.settings)], env=self.environment, text=True, stderr=subprocess.PIPE
        )

    def reported(self, engine: str, number: str = "") -> bool:
        report = read_report(self.written)
        return report is not None and report.engine == engine and report.engine_id == number


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/instance/service-accounts/default/token":
                told = {"access_token": found.token, "expires_in": 3599, "token_type": "Bearer"}
                return self.answer(200 if found.token else 404, told)
            mine = self.path == "/instance/attributes/?recursive=true"
            if self.headers.get("Metadata-Flavor") != "Google" or not mine or not found.answers:
                return self.answer(503 if mine else 403, {})
            self.answer(200, found.metadata)

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.headers.get("Metadata-Flavor") == "Google":
                found.written[self.path.rsplit("/", 1)[1]] = data
            self.answer(200, {})

    with serving(Handler) as address:
        found = Cloud(address, tmp_path)
        yield found


@pytest.fixture(scope="module")
def machine() -> ModuleType:
    return _loaded("machine")


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gce_{name}", GCE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_it_runs_the_server_that_the_metadata_asks_for_and_reports(cloud: Cloud, machine: ModuleType) -> None:
    cloud.metadata = {ENGINE: json.dumps({"id": "one", "arguments": ["--model", "/data/weights/olmo"]})}
    cloud.metadata[ENGINE_KEY] = SECRET
    follow = cloud.start("follow")
    try:
        _wait(lambda: cloud.reported("starting", "one"))
        report = read_report(cloud.written)
        assert report is not None and report.cuda == "ok" and report.device == "NVIDIA L4"
        assert (report.free_gib, report.total_gib) == (21.5, 22.49)
        assert report.dead_man == ARMED
        (cloud.folder / "timer").write_text("inactive")
        _wait(lambda: "ec1-dead-man.timer is inactive" in cloud.written["state"])
        wanted = cloud.run / "engine.json"
        assert wanted.stat().st_mode & 0o777 == 0o600 and cloud.run.stat().st_mode & 0o777 == 0o700
        (cloud.folder / "unit").write_text("failed")
        _wait(lambda: cloud.reported("failed: ValueError: no room for the KV cache", "one"))
        del cloud.metadata[ENGINE]
        _wait(lambda: cloud.reported("off"))
        follow.kill()
        follow.wait()
        follow = cloud.start("follow")
        cloud.written.clear()
        _wait(lambda: cloud.reported("off"))
        assert cloud.said("docker").count("ec1.machines.cuda --min-free-gib 21") == 1, "once after each boot"
        assert not wanted.exists() and SECRET not in cloud.written["state"]
    finally:
        follow.kill()
        _, said = follow.communicate()
    assert SECRET not in said


def _report_of(cloud: Cloud) -> Report:
    """What the machine reports first."""
    cloud.written.clear()
    follow = cloud.start("follow")
    try:
        _wait(lambda: "state" in cloud.written)
    finally:
        follow.kill()
        follow.communicate()
    report = read_report(cloud.written)
    assert report is not None
    return report


def test_a_missing_image_comes_from_googles_registry_by_the_machines_own_account(cloud: Cloud) -> None:
    (cloud.folder / "absent").touch()
    cloud.token = "ya29." + SECRET
    assert _report_of(cloud).cuda == "ok"
    assert (cloud.folder / "password").read_text() == cloud.token
    command = cloud.said("docker")
    assert "login --username oauth2accesstoken --password-stdin https://us-docker.pkg.dev\n" in command
    assert f"pull --quiet {IMAGE}" in command and SECRET not in command
    assert [path.name for path in cloud.run.rglob("*") if path.is_file()] == ["cuda"], "the login is gone"
    cloud.token = ""
    (cloud.run / "cuda").unlink()
    assert _report_of(cloud).cuda == "ok", "what is here is not asked for"


def test_nobody_else_is_shown_the_accounts_token(cloud: Cloud) -> None:
    (cloud.folder / "absent").touch()
    cloud.token = "ya29." + SECRET
    elsewhere = IMAGE.replace("us-docker.pkg.dev", "docker.pkg.dev.acme.example")
    cloud.settings.write_text(json.dumps({"image": elsewhere, "weights": "/data/weights", "min_free_gib": "21"}))
    assert _report_of(cloud).cuda == "the image could not be pulled: denied: Unauthenticated request"
    assert not (cloud.folder / "password").exists()


def test_an_image_that_cannot_be_had_is_what_the_machine_reports(cloud: Cloud) -> None:
    (cloud.folder / "absent").touch()
    assert _report_of(cloud).cuda == "the image could not be pulled: denied: Unauthenticated request"


def test_the_key_is_in_no_command_line(cloud: Cloud) -> None:
    cloud.run.mkdir()
    (cloud.run / "engine.json").write_text(json.dumps({"id": "1", "arguments": ["--model", "olmo"], "key": SECRET}))
    with cloud.start("engine") as process:
        assert process.wait() == 0
    command = cloud.said("docker")
    assert "--gpus all" in command and IMAGE in command and "--model olmo" in command
    assert SECRET not in command and SECRET in (cloud.folder / "environment").read_text()


@pytest.mark.parametrize(
    ("told", "up", "off"),
    [
        (1000.0, 3600.0, False),
        (-1.0, 3600.0, True),
        (-1.0, 60.0, False),
        (None, 600.0, False),
        (None, 1000.0, True),
    ],
    ids=["kept", "forgotten", "just booted", "told nothing, for a while", "told nothing for long"],
)
def test_the_dead_man_powers_off_what_nobody_asks_for(
    cloud: Cloud, machine: ModuleType, told: float | None, up: float, off: bool
) -> None:
    now = time.time()
    if told is not None:
        cloud.metadata = {KEEP_UNTIL: str(int(now + told))}
    assert (machine.dead_man(cloud.address, cloud.run, now, up) is not None) == off
    cloud.answers = False
    # What was last heard counts while nothing is heard.
    assert (machine.dead_man(cloud.address, cloud.run, now, up) is not None) == off
    assert machine.dead_man(cloud.address, cloud.run, now + 7200, 7200.0) is not None


def test_the_dead_man_as_the_timer_starts_it(cloud: Cloud) -> None:
    cloud.metadata = {KEEP_UNTIL: "1"}
    up = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    with cloud.start("dead-man") as process:
        assert process.wait() == 0
    assert ("poweroff" in cloud.said("systemctl")) == (up >= 120)


def test_the_machine_knows_our_keys(machine: ModuleType) -> None:
    text = (GCE / "machine.py").read_text()
    assert all(f'"{key}"' in text for key in (ENGINE, ENGINE_KEY, KEEP_UNTIL)) and "guest-attributes/ec1/state" in text


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHOssVRKOqhXq0FQPVL3KNYytkBj ec1@control"
# What the script calls that acts on the machine itself, and what it needs of /etc to make a user.
SYSTEM = {
    "systemctl": 'echo systemctl "$@" >> "$STATE/calls"; [ "$1" != is-active ] || test -e "$STATE/lasts"',
    "systemd-run": 'echo systemd-run "$@" >> "$STATE/calls"; touch "$STATE/lasts"',
    "apt-get": 'echo apt-get "$@" >> "$STATE/calls"; exit 100',
}
ETC = ("passwd", "group", "shadow", "gshadow", "login.defs", "nsswitch.conf", "default/useradd", "ld.so.cache")


class Vm:
    """A machine that has just booted: the script runs in a file system of its own, as root, with real programs."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state = folder / "root", folder / "state"
        for name in ("etc", "opt", "var/lib", "home"):
            (self.root / name).mkdir(parents=True)
        self.state.mkdir()
        for name in ETC:
            if (there := Path("/etc") / name).is_file():
                (self.root / "etc" / name).parent.mkdir(exist_ok=True)
                shutil.copy(there, self.root / "etc" / name)
        for name, body in SYSTEM.items():
            (self.state / name).write_text(f"#!/bin/sh\n{body}\n")
            (self.state / name).chmod(0o755)

    def boot(self, script: str) -> list[str]:
        """Run the start-up script. Returns what it asked systemd and apt for."""
        (self.state / "calls").unlink(missing_ok=True)
        (self.state / "script").write_text(script)
        own = [part for name in ("etc", "opt", "var/lib", "home") for part in ("--bind", self.root / name, f"/{name}")]
        command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", self.state, self.state, *own]
        environment = {"PATH": f"{self.state}:/usr/sbin:/usr/bin:/sbin:/bin", "STATE": str(self.state)}
        # Its status is not looked at by Google's guest environment either.
        subprocess.run([*command, "sh", self.state / "script"], env=environment, check=False, timeout=60)
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def vm(tmp_path: Path) -> Vm:
    if os.getuid() != 0:
        pytest.skip("makes a user in a file system of its own, which takes root")
    return Vm(tmp_path)


def _script(**given: Any) -> str:
    return str(_loaded("startup_script").startup_script(IMAGE, "/data/weights", "ec1-weights", 21, **given))


@pytest.mark.needs("bwrap")
def test_the_start_up_script_brings_these_files_at_each_boot(vm: Vm) -> None:
    calls = vm.boot(_script(lifetime_seconds=7200))
    assert calls[1:] == [
        "systemd-run --on-boot=7200s --unit=ec1-last-resort systemctl poweroff",
        "systemctl daemon-reload",
        "systemctl enable --now ec1-dead-man.timer",
        "systemctl enable --now --no-block data.mount",
        "systemctl enable ec1-machine.service",
        "systemctl restart ec1-machine.service",
    ], "what ends the machine comes first"
    for path in GCE.glob("ec1-*.*"):
        assert (vm.root / "etc" / "systemd" / "system" / path.name).read_bytes() == path.read_bytes()
    assert (vm.root / "opt" / "ec1" / "machine.py").read_bytes() == (GCE / "machine.py").read_bytes()
    mount = (vm.root / "etc" / "systemd" / "system" / "data.mount").read_text()
    assert "What=/dev/disk/by-id/google-ec1-weights\n" in mount and "Options=ro\n" in mount
    settings = json.loads((vm.root / "etc" / "ec1-machine.json").read_text())
    assert settings == {"image": IMAGE, "weights": "/data/weights", "min_free_gib": "21"}
    assert not (vm.root / "opt" / "ec1" / "python").exists() and "ec1:" not in (vm.root / "etc" / "passwd").read_text()
    (vm.root / "opt" / "ec1" / "machine.py").write_text("another version")
    again = vm.boot(_script(lifetime_seconds=7200))
    assert not any(call.startswith("systemd-run") for call in again) and again[1:] == calls[2:]
    assert (vm.root / "opt" / "ec1" / "machine.py").read_bytes() == (GCE / "machine.py").read_bytes()


@pytest.mark.needs("bwrap")
def test_with_a_key_it_makes_a_machine_that_trains(vm: Vm) -> None:
    for _ in range(2):
        calls = vm.boot(_script(ssh_key=KEY))
    keys = vm.root / "home" / "ec1" / ".ssh" / "authorized_keys"
    assert keys.read_text() == f"{KEY}\n"
    (line,) = [line for line in (vm.root / "etc" / "passwd").read_text().splitlines() if line.startswith("ec1:")]
    user = int(line.split(":")[2])
    for path, mode in ((keys, 0o600), (keys.parent, 0o700), (vm.root / "var" / "lib" / "ec1-work", 0o755)):
        assert path.stat().st_uid == user and path.stat().st_mode & 0o777 == mode, path
    assert re.search("^ec1:\\*:", (vm.root / "etc" / "shadow").read_text(), re.MULTILINE), "no password, and not locked"
    assert re.search("^docker:.*:ec1$", (vm.root / "etc" / "group").read_text(), re.MULTILINE)
    assert (vm.root / "opt" / "ec1" / "python").stat().st_mode & 0o777 == 0o755
    assert calls[-1] == "systemctl restart ec1-machine.service"


@pytest.mark.needs("bwrap")
def test_a_machine_that_cannot_keep_files_still_ends(vm: Vm) -> None:
    (vm.root / "etc" / "systemd").write_text("no folder")
    calls = vm.boot(_script())
    assert "systemd-run --on-boot=21600s --unit=ec1-last-resort systemctl poweroff" in calls
    assert "systemctl enable --now ec1-dead-man.timer" in calls


def test_what_the_start_up_script_cannot_be_made_of_is_refused() -> None:
    assert len(_script(ssh_key=KEY)) < 256 * 1024, "what one metadata value may hold"
    make = _loaded("startup_script").startup_script
    with pytest.raises(ValueError, match="not a public key"):
        make(IMAGE, "/data/weights", "ec1-weights", 21, "-----BEGIN OPENSSH PRIVATE KEY-----")
    with pytest.raises(ValueError, match="not the device name"):
        make(IMAGE, "/data/weights", "x\nOptions=rw", 21)
    command = [sys.executable, str(GCE / "startup_script.py"), "--image", "us-docker.pkg.dev/acme/ec1/ec1-gpu:latest"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "digest" in refused.stderr


def test_its_python_is_a_container_that_the_server_ends(cloud: Cloud) -> None:
    command = [sys.executable, str(GCE / "machine.py"), "python", "--settings", str(cloud.settings)]
    subprocess.run([*command, "--", "-m", "ec1.cli", "worker", "--once"], env=cloud.environment, check=True)
    (line,) = cloud.said("docker").splitlines()
    assert line.endswith(f"{IMAGE} -m ec1.cli worker --once") and "--gpus all" in line and "--network none" in line
    label = re.search("--label (\\S+)", line)
    assert label is not None and f"label={label[1]} " in (GCE / "ec1-engine.service").read_text()


def test_it_reports_the_keys_of_its_sshd(machine: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA root@machine\n")
    (tmp_path / "ssh_host_ed25519_key").write_text("a secret")
    assert machine.host_keys(tmp_path) == ["ssh-ed25519 AAAA"]


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_machine_s_units(tmp_path: Path) -> None:
    units = []
    for path in sorted(GCE.glob("ec1-*.*")):
        # It looks for the programs, which are not on this machine.
        text = path.read_text().replace("/usr/bin/docker", "/bin/true").replace("/usr/bin/python3", "/bin/true")
        text = re.sub("(After|Requires|Wants)=.*docker.service\n", "", text)
        (tmp_path / path.name).write_text(text)
        units.append(tmp_path / path.name)

    def verify() -> str:
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "\n".join(line for line in done.stderr.splitlines() if str(tmp_path) in line or "ec1-" in line)

    assert len(units) == 4 and verify() == ""
    units[0].write_text(units[0].read_text().replace("[Service]", "[Service]\nExecStartt=/bin/true"))
    assert re.search("Unknown key (name )?'ExecStartt'", verify())


def test_the_image_is_checked_when_it_is_built() -> None:
    text = (GCE / "Dockerfile").read_text()
    assert "ec1.machines.cuda --versions" in text and "latest" not in text


def test_a_machine_without_a_card_is_told_so(cloud: Cloud) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ec1.machines.cuda"], env={"PATH": "/nowhere"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "nvidia-smi" in json.loads(done.stdout)["cuda"]


def test_a_product_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    # A processor without bfloat16 takes a minute for a product of the size that a card is asked for.
    monkeypatch.setattr(cuda, "SIZE", 256)
    assert cuda.product_error("cpu") < cuda.TOLERANCE
    right = torch.Tensor.__matmul__

    def broken(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found = right(one, other)
        return found * 1.2 if one.dtype == torch.bfloat16 else found

    monkeypatch.setattr(torch.Tensor, "__matmul__", broken)
    assert cuda.product_error("cpu") > cuda.TOLERANCE


def test_versions_that_are_not_the_pinned_ones_are_named(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    text = '[project]\ndependencies = ["torch==1.0.0", "peft>=0.1", "unknown-to-us>=9"]\n'
    pyproject.write_text(text + '[project.optional-dependencies]\ngpu = ["vllm~=0.32.0"]\n')
    wrong = cuda.wrong_versions(pyproject)
    assert any(line.startswith("torch is ") for line in wrong) and not any("peft" in line for line in wrong)
