"""Packs what the box needs beside torch, transformers, peft and accelerate, from what is installed here.

One archive of at most 40 MiB, with one of bitsandbytes' CUDA libraries; unpacked, it is a folder for PYTHONPATH. Python
version and platform must be those of the machine with the card. pyarrow and pandas, which datasets asks for, are too
large: without them in its image, the step `trl` is left out there.

Run: python -m benchmarks.gpu.carry --cuda 128 [--out carried.tar.gz]
There: mkdir carried && tar xf carried.tar.gz -C carried && PYTHONPATH=carried python3 -m benchmarks.gpu
"""

import argparse
import importlib.metadata
import sys
import tarfile
from pathlib import Path

CARRIED = (
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions"),
    *("psutil", "nvidia-ml-py", "ruamel.yaml", "packaging", "joblib", "bitsandbytes", "trl"),
    *("datasets", "dill", "multiprocess", "xxhash", "httpx", "httpcore", "h11", "anyio", "sniffio", "idna", "certifi"),
)
LIMIT_MIB = 40


def pack(out: Path, cuda: str) -> list[str]:
    """Write the archive. Returns packages that are not installed here. Raises SystemExit above the limit, or if
    bitsandbytes has no library for that CUDA."""
    missing = []
    with tarfile.open(out, "w:gz") as archive:
        for name in CARRIED:
            try:
                files = importlib.metadata.files(name) or []
            except importlib.metadata.PackageNotFoundError:
                missing.append(name)
                continue
            for file in files:
                source = Path(str(file.locate()))
                library = file.name.startswith("libbitsandbytes_") and f"_cuda{cuda}." not in file.name
                if not (".." in file.parts or file.suffix == ".pyc" or library) and source.is_file():
                    archive.add(source, str(file))
        names = archive.getnames()
    if f"bitsandbytes/libbitsandbytes_cuda{cuda}.so" not in names:
        sys.exit(f"bitsandbytes here has no library for CUDA {cuda}")
    size = out.stat().st_size / 2**20
    if size > LIMIT_MIB:
        sys.exit(f"{size:.0f} MiB are more than {LIMIT_MIB}")
    print(f"{size:.1f} MiB in {out}")
    return missing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", default="128", help="as in the library's name: 128 is CUDA 12.8")
    parser.add_argument("--out", type=Path, default=Path("carried.tar.gz"))
    arguments = parser.parse_args()
    for absent in pack(arguments.out, arguments.cuda):
        print(f"not installed here, and so not carried: {absent}")
