"""Read batches with Grain, which maps them further, and resume from the state of its iterator.

Usage: python examples/with_grain.py DATASET   (with the split train)
"""

import itertools
import json
import sys

import grain
import numpy as np

from tfshards import loader


def main(path: str) -> None:
    """Read two epochs, the second half after a restart, and print what was read."""
    image = loader.Image(size=(16, 16), crop="random", channels=1)
    options = {
        "batch_size": 32,
        "shuffle": loader.Shuffle(seed=0),
        "select": ("image", "label"),
        "image": image,
    }
    # with an end, since Grain asks for the length
    batches = loader.batches(path, "train", epochs=2, **options)

    def pipeline() -> grain.DatasetIterator:
        data = grain.MapDataset.source(batches).map(lambda batch: (batch[0] / np.float32(255), batch[1]))
        # mp_prefetch(grain.MultiprocessingOptions(num_workers=4)) reads in processes
        return iter(data.to_iter_dataset())

    first, second = pipeline(), pipeline()
    half = list(itertools.islice(first, len(batches) // 2))
    state = json.loads(json.dumps(first.get_state()))
    second.set_state(state)
    labels = np.concatenate([labels for _, labels in [*half, *second]])
    expected = np.concatenate([labels for _, labels in batches])
    # the same position for tf.data
    start = loader.Position(*divmod(state["next_index"], batches.steps_per_epoch))
    rest = loader.load(path, "train", epochs=2, start=start, **options)
    print(f"{len(labels)} labels, {np.mean(labels == expected):.0%} in the order of load")
    print(f"{len(rest)} batches left for load at {start}")


main(sys.argv[1])
