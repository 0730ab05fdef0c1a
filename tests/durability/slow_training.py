"""Opens a dataset with the loader, reads one batch, waits for a file, and reads on to the end of the epoch.

``slow_training.py OUT FILE`` prints the number of bytes read for the first batch, and then, when ``FILE``
exists, the number of examples read in total and a digest of their values.
"""

import hashlib
import sys
import time
from pathlib import Path

from tfshards import loader


def num_bytes_read() -> int:
    """Return how many bytes this process has read so far, from disk or from the cache."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


if __name__ == "__main__":
    before = num_bytes_read()
    dataset = loader.load(sys.argv[1], batch_size=4, select=("x",), remainder="keep")
    batches = iter(dataset.as_numpy_iterator())
    values = next(batches)[0][:, 0].tolist()
    print(num_bytes_read() - before, flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    for (batch,) in batches:
        values += batch[:, 0].tolist()
    print(len(values), hashlib.sha256(repr(sorted(values)).encode()).hexdigest(), flush=True)
