"""How long a search takes in a graph of a million mentions, and the first after a publication, which makes the index.

The graph is that of `night_cost`. Each question is asked `--times` times in one process with the graph open; shown are
the slowest and the median, milliseconds.

Run: python -m benchmarks.search_names [--size 300000] [--mentions 1000000]
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.night_cost import MENTIONS, build, cpu
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.search_index import index_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=300_000, help="entities")
    parser.add_argument("--mentions", type=int, default=MENTIONS)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with LadybugStore.open(Path(folder) / "live", buffer_pool_mib=2048, wait_seconds=0) as store:
            names = build(store, arguments.size, arguments.mentions)
            store.update_resolution(NO_OVERRIDES)
            published = store.publish(Path(folder) / "published")
        with GraphReader(published, buffer_pool_mib=1024) as reader:
            reader.stats()
            print(f"the first search, which makes the index: {cpu(lambda: reader.search(names[0])):.1f} CPU s")
            print(f"the index: {index_path(published).stat().st_size / 2**20:.0f} MiB")
            chosen = random.Random(1).sample([name for name in names if " " in name], arguments.times)
            questions = {
                "whole name": chosen,
                "other order": [" ".join(reversed(name.split())) for name in chosen],
                "one letter wrong": [name[:3] + "x" + name[4:] for name in chosen],
                "three letters, in most names": [name[:3] for name in chosen],
                "two letters": [name[:2] for name in chosen],
                "nobody": ["Zyxwvu Tsrqpo"] * arguments.times,
            }
            for label, texts in questions.items():
                took = []
                for text in texts:
                    began = time.perf_counter()
                    reader.search(text)
                    took.append(1000 * (time.perf_counter() - began))
                print(f"{label:<30} median {statistics.median(took):6.1f} ms, slowest {max(took):6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
