"""Prints the start-up script of the GPU machine, for an instance template's `startup-script` (docs/gce.md).

`python deploy/gce/startup_script.py --image REGION-docker.pkg.dev/PROJECT/ec1/ec1-gpu@sha256:… > startup-script.sh`

Google's guest environment runs it as root at every boot, in each of Google's images:
https://cloud.google.com/compute/docs/instances/startup-scripts/linux
"""

import argparse
import base64
import json
import re
import sys
from pathlib import Path
from shlex import quote

HERE = Path(__file__).parent
UNITS = ("ec1-machine.service", "ec1-engine.service", "ec1-dead-man.service", "ec1-dead-man.timer")
PUBLIC_KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]*)?")
PINNED = re.compile(r"[a-z0-9.-]+(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}")
DEVICE = re.compile(r"[a-z0-9][a-z0-9_-]*")

# What ends the machine comes first, and nothing after it can end the script: a part that fails is in the journal, and
# a machine that cannot do its work does not report, which the night says.
SCRIPT = """\
#!/bin/sh
systemctl is-active --quiet ec1-last-resort.timer ||
  systemd-run --on-boot={lifetime}s --unit=ec1-last-resort systemctl poweroff

file() {{
  mkdir -p "$(dirname "$2")" && base64 -d > "$2.new" && chmod "$1" "$2.new" && mv "$2.new" "$2"
}}

{files}
systemctl daemon-reload
systemctl enable --now ec1-dead-man.timer
{trainings}systemctl enable --now --no-block data.mount
systemctl enable ec1-machine.service
systemctl restart ec1-machine.service
"""
# The user of a machine's image may be there already. Who may start containers is root on this machine, which holds
# nothing but what trainings bring. `*` is a password that nobody has, and no lock: sshd lets no locked user in.
TRAININGS = """\
groupadd --force docker
id ec1 > /dev/null 2>&1 || useradd --create-home --shell /bin/sh --password '*' ec1
usermod --append --groups docker ec1
install --directory --owner=ec1 --group=ec1 /var/lib/ec1-work
home=$(getent passwd ec1 | cut -d: -f6)
install --directory --owner=ec1 --group=ec1 --mode=0700 "$home/.ssh"
file 0600 "$home/.ssh/authorized_keys" << 'END'
{key}
END
chown ec1:ec1 "$home/.ssh/authorized_keys"
command -v rsync > /dev/null || {{ apt-get update -qq && apt-get install -y -qq rsync; }}
"""
WEIGHTS = """\
[Unit]
Description=EC1: the disk with the models' weights

[Mount]
What=/dev/disk/by-id/google-{disk}
Where=/data
Type=ext4
Options=ro

[Install]
WantedBy=multi-user.target
"""


def startup_script(
    image: str, weights: str, disk: str, min_free_gib: float = 20, ssh_key: str = "", lifetime_seconds: int = 21600
) -> str:
    """The script. `disk` is the weights disk's device name, `ssh_key` the public key that trainings come with (none:
    nobody may), `lifetime_seconds` the deployment's `machine.max_lifetime_seconds`. Raises ValueError for an image
    without a digest, another key, or what is no device name."""
    if not PINNED.fullmatch(image):
        raise ValueError(f"{image!r}: name the image by its digest, REGISTRY/NAME@sha256:…")
    if ssh_key and not PUBLIC_KEY.fullmatch(ssh_key):
        raise ValueError(f"{ssh_key[:40]!r} is not a public key: it is the one line of a .pub file")
    if not DEVICE.fullmatch(disk):
        raise ValueError(f"{disk!r} is not the device name of a disk")
    settings = json.dumps({"image": image, "weights": weights, "min_free_gib": f"{min_free_gib:g}"})
    files = {
        "/opt/ec1/machine.py": (HERE / "machine.py").read_bytes(),
        "/etc/ec1-machine.json": settings.encode(),
        **{f"/etc/systemd/system/{name}": (HERE / name).read_bytes() for name in UNITS},
        "/etc/systemd/system/data.mount": WEIGHTS.format(disk=disk).encode(),
    }
    written = [_file(0o644, path, data) for path, data in files.items()]
    if ssh_key:
        written.append(_file(0o755, "/opt/ec1/python", (HERE / "python").read_bytes()))
    return SCRIPT.format(
        lifetime=lifetime_seconds,
        files="\n".join(written),
        trainings=TRAININGS.format(key=_encoded(f"{ssh_key}\n".encode())) if ssh_key else "",
    )


def _file(mode: int, path: str, data: bytes) -> str:
    """The lines that write a file whole or not at all."""
    return f"file {mode:04o} {quote(path)} << 'END'\n{_encoded(data)}\nEND\n"


def _encoded(data: bytes) -> str:
    return base64.encodebytes(data).decode().strip()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", required=True)
    parser.add_argument("--weights", default="/data/weights")
    parser.add_argument("--disk", default="ec1-weights")
    parser.add_argument("--min-free-gib", type=float, default=20, help="as the deployment's gpu.min_free_gib")
    parser.add_argument("--ssh-key", type=Path, help="file of the public key that trainings come with")
    parser.add_argument(
        "--lifetime-seconds", type=int, default=21600, help="as the deployment's machine.max_lifetime_seconds"
    )
    arguments = parser.parse_args()
    ssh_key = arguments.ssh_key.read_text().strip() if arguments.ssh_key else ""
    try:
        given = (arguments.image, arguments.weights, arguments.disk, arguments.min_free_gib)
        sys.stdout.write(startup_script(*given, ssh_key, arguments.lifetime_seconds))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
