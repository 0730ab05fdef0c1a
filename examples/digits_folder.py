"""Write scikit-learn's handwritten digits as PNG files, one folder per digit.

Usage: python examples/digits_folder.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def main(folder: Path) -> None:
    """Write 1,797 gray images of 32 x 32 pixels to ``folder``."""
    digits = load_digits()
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(digit) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        gray = np.uint8(pixels * 255 / 16)
        Image.fromarray(gray).resize((32, 32), Image.Resampling.BILINEAR).save(path)
    print(f"{folder}: {len(digits.target)} images in {len(set(digits.target))} folders")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
