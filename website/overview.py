"""Draw the picture of the README: the flow of data, and the report of a dataset of digits.

Usage: python -m website.overview PICTURE.png

It needs Chromium, and scikit-learn for the digits.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chromium import chromium

ROOT = Path(__file__).parents[1]
STEPS = (
    ("photos, arrays, tables", "folders, .npy, Parquet, CSV"),
    ("tfshards build", "list, plan, write shards with Apache Beam"),
    ("data/photos", "dataset.json, TFRecord shards, index"),
    ("loader.load", "exact order, one share for each worker"),
    ("model.fit", "a tf.data.Dataset of known length"),
)
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 24px; width: 1152px; background: #fff }}
body {{ font: 15px/1.4 system-ui, sans-serif; color: #1c2733 }}
.flow {{ display: flex; align-items: center; justify-content: space-between; margin-bottom: 20px }}
.step {{ border: 1.5px solid #2f6f9f; border-radius: 8px; padding: 10px 12px; width: 178px }}
.step {{ text-align: center }}
.step b {{ display: block; font: 600 15px ui-monospace, monospace; color: #1d4f76 }}
.step span {{ font-size: 12.5px; color: #4a5a68 }}
.arrow {{ color: #2f6f9f; font-size: 22px }}
iframe {{ width: 1150px; height: 560px; border: 1px solid #ccd5dd; border-radius: 8px }}
</style><div class="flow">{steps}</div><iframe src="report.html" scrolling="no"></iframe>"""


def draw(picture: Path) -> None:
    """Write the picture as a PNG."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("examples/digits_folder.py", folder / "digits")
        dataset = folder / "digits-dataset"
        command = ["build", "images", folder / "digits", dataset, "--shards", 8, "--shards", "test=2"]
        tfshards(*command, "--splits", "train=0.8", "--splits", "test=0.2", "--stratify")
        tfshards("report", dataset, "--output", folder / "report.html")
        boxes = [f'<div class="step"><b>{name}</b><span>{text}</span></div>' for name, text in STEPS]
        page = folder / "page.html"
        page.write_text(PAGE.format(steps='<div class="arrow">→</div>'.join(boxes)))
        (folder / "chromium").mkdir()
        with chromium(folder / "chromium") as view:
            view.set_view(1200, 720)
            view.open(page)
            view.screenshot(picture)


def run(*command: object) -> None:
    """Run Python in the clone."""
    subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=True)


def tfshards(*command: object) -> None:
    """Run the command ``tfshards``."""
    run("-m", "tfshards", *command, "--quiet")


if __name__ == "__main__":
    draw(Path(sys.argv[1]).absolute())
