"""Packs what the box needs beside torch, transformers, peft and accelerate: what is installed here, in these versions.

One archive of at most 40 MiB, with one of bitsandbytes' CUDA libraries; unpacked, it is a folder for PYTHONPATH. For
another Python than this one its wheels are downloaded. pyarrow and pandas, which datasets asks for, are too large:
without them in its image, the step `trl` is left out there.

Run: python -m benchmarks.gpu.carry --cuda 130 [--python 3.12] [--out carried.tar.gz]
There: mkdir carried && tar xf carried.tar.gz -C carried && PYTHONPATH=carried python3 -m benchmarks.gpu
"""

import argparse
import importlib.metadata
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePath

CARRIED = (
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
    *("psutil", "nvidia-ml-py", "ruamel.yaml", "packaging", "joblib", "bitsandbytes", "trl"),
    *("datasets", "dill", "multiprocess", "xxhash", "httpx", "httpcore", "h11", "anyio", "sniffio", "idna", "certifi"),
)
LIMIT_MIB = 40
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORMS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
"""Of Linux with glibc 2.34 or newer; pip takes a wheel of the named ones only."""


def pack(out: Path, cuda: str, python: str = HERE) -> list[str]:
    """Write the archive. Returns packages that are not installed here. Raises SystemExit above the limit, or if
    bitsandbytes has no library for that CUDA; CalledProcessError if a wheel cannot be downloaded."""
    missing, pins = [], []
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(out, "w:gz") as archive:
        for name in CARRIED:
            try:
                found = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                missing.append(name)
                continue
            pins.append(f"{name}=={found.version}")
            for file in found.files or [] if python == HERE else []:
                _add(archive, Path(str(file.locate())), file, cuda)
        if python != HERE:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command += ["--python-version", python, "--target", scratch]
            command += [f"--platform={each}_x86_64" for each in PLATFORMS]
            subprocess.run([*command, *pins], check=True)
            for path in sorted(Path(scratch).rglob("*")):
                _add(archive, path, path.relative_to(scratch), cuda)
        names = archive.getnames()
    if f"bitsandbytes/libbitsandbytes_cuda{cuda}.so" not in names:
        sys.exit(f"bitsandbytes here has no library for CUDA {cuda}")
    size = out.stat().st_size / 2**20
    if size > LIMIT_MIB:
        sys.exit(f"{size:.0f} MiB are more than {LIMIT_MIB}")
    print(f"{size:.1f} MiB in {out}")
    return missing


def _add(archive: tarfile.TarFile, source: Path, name: PurePath, cuda: str) -> None:
    library = name.name.startswith("libbitsandbytes_") and f"_cuda{cuda}." not in name.name
    if not (".." in name.parts or name.suffix == ".pyc" or library) and source.is_file():
        archive.add(source, str(name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", default="128", help="as in the library's name: 128 is CUDA 12.8")
    parser.add_argument("--python", default=HERE, help="of the machine with the card; default: this one's")
    parser.add_argument("--out", type=Path, default=Path("carried.tar.gz"))
    arguments = parser.parse_args()
    for absent in pack(arguments.out, arguments.cuda, arguments.python):
        print(f"not installed here, and so not carried: {absent}")
