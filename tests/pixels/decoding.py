"""TensorFlow's decoders in processes of their own, which no file may end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.programs import Programs


class TensorFlow:
    """Decodes many images in a process that has already imported TensorFlow."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self.folder, self.programs, self.num_batches = folder, programs, 0

    def decode(self, encoded: Sequence[bytes], channels: int = 3) -> list[np.ndarray]:
        """Return the pixels of each image, or an empty array for those that TensorFlow refuses."""
        self.num_batches += 1
        path = self.folder / f"{self.num_batches}.npz"
        np.savez(path, *(np.frombuffer(data, np.uint8) for data in encoded))
        ended = self.programs.run([Path(__file__).parent / "corpus" / "decode_all.py", path, channels])
        assert ended.returncode == 0, f"ended with {ended.returncode}; {path} has what killed it"
        with np.load(f"{path}.pixels.npz") as pixels:
            return [pixels[f"arr_{number}"] for number in range(len(encoded))]
