"""Read every split of a dataset once, in a random order, and compare the numbers of examples."""

import sys

from tfshards import loader
from tfshards.schemas import read_manifest


def main() -> None:
    """Read the dataset that the command line names."""
    path = sys.argv[1]
    for name, split in read_manifest(path).splits.items():
        batches = loader.load(path, name, batch_size=2, remainder="keep", shuffle=loader.Shuffle(seed=1))
        found = sum(len(batch["key"]) for batch in batches)
        assert found == split.num_examples, (name, found)
        print(f"{name}: {found} examples")


if __name__ == "__main__":
    main()
