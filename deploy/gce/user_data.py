"""Prints the cloud-init configuration of the GPU machine, for an instance template's `user-data` (docs/gce.md).

`python deploy/gce/user_data.py --image REGION-docker.pkg.dev/PROJECT/ec1/ec1-gpu@sha256:… > user-data.yaml`
"""

import argparse
import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
UNITS = ("ec1-machine.service", "ec1-engine.service", "ec1-dead-man.service", "ec1-dead-man.timer")
PUBLIC_KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n]*)?")
PINNED = re.compile(r"[a-z0-9.-]+(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}")


def user_data(
    image: str, weights: str, disk: str, min_free_gib: float = 20, ssh_key: str = "", lifetime_seconds: int = 21600
) -> str:
    """The configuration. `disk` is the weights disk's device name, `ssh_key` the public key that trainings come with
    (none: nobody may), `lifetime_seconds` the deployment's `machine.max_lifetime_seconds`. Raises ValueError for an
    image without a digest, or another key."""
    if not PINNED.fullmatch(image):
        raise ValueError(f"{image!r}: name the image by its digest, REGISTRY/NAME@sha256:…")
    if ssh_key and not PUBLIC_KEY.fullmatch(ssh_key):
        raise ValueError(f"{ssh_key[:40]!r} is not a public key: it is the one line of a .pub file")
    settings = json.dumps({"image": image, "weights": weights, "min_free_gib": f"{min_free_gib:g}"})
    files = [("/opt/ec1/machine.py", (HERE / "machine.py").read_bytes()), ("/etc/ec1-machine.json", settings.encode())]
    files += [(f"/etc/systemd/system/{name}", (HERE / name).read_bytes()) for name in UNITS]
    config: dict[str, Any] = {
        "mounts": [
            [f"/dev/disk/by-id/google-{disk}", "/data", "ext4", "ro,nofail,x-systemd.device-timeout=60", "0", "2"]
        ],
        "write_files": [
            {
                "path": path,
                "encoding": "b64",
                "content": base64.b64encode(data).decode(),
                "owner": "root:root",
                "permissions": "0644",
            }
            for path, data in files
        ],
        "bootcmd": [
            # First of all, and again at each boot: whatever fails later, the machine ends.
            ["systemd-run", f"--on-boot={lifetime_seconds}s", "--unit=ec1-last-resort", "systemctl", "poweroff"],
        ],
        "runcmd": [
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "ec1-dead-man.timer"],
            ["python3", "/opt/ec1/machine.py", "pull"],
            ["systemctl", "enable", "--now", "ec1-machine.service"],
        ],
    }
    if ssh_key:
        config["write_files"].append(
            {"path": "/opt/ec1/python", "content": (HERE / "python").read_text(), "permissions": "0755"}
        )
        # Who may start containers is root on this machine, which holds nothing but what trainings bring.
        config["groups"] = ["docker"]
        user = {"name": "ec1", "groups": ["docker"], "shell": "/bin/sh", "lock_passwd": True}
        config["users"] = ["default", {**user, "ssh_authorized_keys": [ssh_key]}]
        config["packages"] = ["rsync"]
        config["runcmd"].insert(0, ["install", "--directory", "--owner=ec1", "--group=ec1", "/var/lib/ec1-work"])
    # JSON is YAML.
    return "#cloud-config\n" + json.dumps(config, indent=1) + "\n"


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
        sys.stdout.write(user_data(*given, ssh_key, arguments.lifetime_seconds))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
