"""What docs/architecture.md says of changes is true: each is made on a copy, in the files of its row."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tables import mostly_nightly

ROOT = Path(__file__).parents[1]


class Copy:
    """A copy of the code, which tests change and run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("prep", "loader", "schemas"):
            shutil.copytree(
                ROOT / name, folder / "tfshards" / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copytree(ROOT / ".namespace" / "tfshards", folder / "tfshards", dirs_exist_ok=True)

    def change(self, path: str, before: str, after: str) -> None:
        """Replace a text that occurs once in a file."""
        file = self.folder / "tfshards" / path
        text = file.read_text()
        assert text.count(before) == 1, (path, before)
        file.write_text(text.replace(before, after))

    def add(self, path: str, text: str) -> None:
        """Add a file."""
        (self.folder / "tfshards" / path).write_text(textwrap.dedent(text))

    def run(self, *arguments: str, cwd: Path, status: int | None = 0) -> str:
        """Return what Python prints; on standard error as well if it is not to succeed."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, text=True
        )
        assert status is None or done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    def command(self, line: str, cwd: Path, status: int | None = 0) -> str:
        """Return what the command ``tfshards`` prints."""
        return self.run("-m", "tfshards", *line.split(), cwd=cwd, status=status)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


@pytest.fixture
def photos(tmp_path):
    for number in range(6):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (number, 0, 0)).save(path)
    return tmp_path


READ = "import sys; from tfshards import prep; print(prep.info(sys.argv[1]).options['toy'])"


BUILD_ID = "import sys; from tfshards import prep; print(prep.info(sys.argv[1]).build_id)"


TOYS = [
    (
        "prep/planning/options.py",
        "    stratify: bool = option(",
        '    toy: int = option(3, "a toy", metavar="N", parse=int)\n    stratify: bool = option(',
        "--toy 5",
        5,
    ),
    (
        "prep/imaging/options.py",
        "    animation: Animation = option(",
        '    toy: str = option("x", "a toy", choices=("x", "y"))\n    animation: Animation = option(',
        "--toy y",
        "y",
    ),
    (
        "prep/sources/images/folder.py",
        "    include: Sequence[str] = option(",
        '    toy: Sequence[str] = option((), "a toy", is_repeatable=True)\n'
        "    include: Sequence[str] = option(",
        "--toy a --toy b",
        ["a", "b"],
    ),
]


@pytest.mark.parametrize(
    ("path", "before", "after", "flag", "value"),
    mostly_nightly(TOYS, TOYS[2:]),
    ids=["of builds", "of images", "of folders"],
)
def test_a_new_option_of_build_is_one_field(path, before, after, flag, value, copy, photos):
    copy.change(path, before, after)
    assert "--toy" in copy.command("build images --help", photos)
    for name, given in (("plain", ""), ("made", flag)):
        copy.command(f"build images photos {name} --name made --shards 2 {given}", photos)
    assert copy.run("-c", READ, "made", cwd=photos) == f"{value}\n"
    ids = {copy.run("-c", BUILD_ID, name, cwd=photos) for name in ("plain", "made")}
    assert len(ids) == 2
    # a file of options, and the options of another dataset
    (photos / "c.toml").write_text(f"toy = {value!r}")
    copy.command("build images photos configured --shards 2 --name made --config c.toml", photos)
    copy.command("build --from made photos again", photos)
    made = (photos / "made" / "dataset.json").read_bytes()
    assert (photos / "configured" / "dataset.json").read_bytes() == made
    assert (photos / "again" / "dataset.json").read_bytes() == made
    # repair and append build with the recorded options
    shard = next((photos / "made").glob("*.tfrecord-*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    copy.command("verify made --repair photos", photos)
    assert shard.read_bytes() == content
    Image.new("RGB", (4, 3), (9, 0, 0)).save(photos / "photos" / "a" / "9.png")
    copy.command("append photos made", photos)
    assert copy.run("-c", READ, "made", cwd=photos) == f"{value}\n"


def test_a_new_option_of_load_is_one_field(copy, photos):
    copy.change(
        "loader/options/load_options.py",
        "        epochs: the epoch to stop before",
        "        toy: a toy\n        epochs: the epoch to stop before",
    )
    copy.change(
        "loader/options/load_options.py",
        "    epochs: int | None = 1\n",
        "    toy: int = 3\n    epochs: int | None = 1\n",
    )
    copy.command("build images photos data --shards 1", photos)
    code = (
        "from tfshards import loader\n"
        "assert '        toy: a toy' in loader.load.__doc__\n"
        "print(len(loader.load('data', batch_size=2, toy=5)))"
    )
    assert copy.run("-c", code, cwd=photos) == "3\n"


def test_a_new_reason_of_a_rejection_is_a_row_and_a_raise(copy, photos):
    copy.change(
        "schemas/reasons.py", '    EMPTY = "empty"', '    TOY = "toy", "is a toy"\n    EMPTY = "empty"'
    )
    copy.change(
        "prep/imaging/normalize.py",
        "    if not data:\n",
        '    if data:\n        raise ImageError(Reason.TOY, "it is")\n    if not data:\n',
    )
    copy.command("build images photos data --shards 1 --max-rejected 1", photos, status=1)
    printed = copy.command("plan images photos data --shards 1 --estimate", photos, status=None)
    assert "toy" in printed


def test_a_new_error_is_a_line_of_the_table_and_a_raise(copy, photos):
    copy.change("prep/texts.json", "{\n", '{\n "toy-found": "there are {number:,} toys || put them away",\n')
    copy.change(
        "prep/cli/generations.py",
        "def _run(args: argparse.Namespace) -> Result:\n",
        "def _run(args: argparse.Namespace) -> Result:\n"
        "    from tfshards.schemas import InputError\n    raise InputError('toy-found', number=1234)\n",
    )
    printed = copy.command("prune data", photos, status=1)
    assert "there are 1,234 toys" in printed
    assert '"code": "toy-found"' in copy.command("prune data --json", photos, status=1)


def test_a_new_view_is_a_file_and_a_row(copy, photos):
    copy.add(
        "prep/views/toy.py",
        """
        def toy_files(manifest):
            return {"toy.txt": f"{manifest.num_examples} toys".encode()}
        """,
    )
    copy.change(
        "prep/views/table.py",
        "from tfshards.schemas import Manifest",
        "from tfshards.prep.views.toy import toy_files\nfrom tfshards.schemas import Manifest",
    )
    copy.change(
        "prep/views/table.py", "VIEWS = (\n", 'VIEWS = (\n    View("toys", toy_files, lambda _: []),\n'
    )
    copy.command("build images photos data --shards 1", photos)
    assert (photos / "data" / "toy.txt").read_text() == "6 toys"
    (photos / "data" / "toy.txt").write_text("7 toys")
    assert "toy.txt" in copy.command("verify data", photos, status=1)
    copy.command("verify data --repair", photos)
    assert (photos / "data" / "toy.txt").read_text() == "6 toys"


def test_a_new_format_of_export_is_a_file_and_a_row(copy, photos):
    copy.add(
        "prep/exporting/toy.py",
        """
        from tfshards.prep.exporting.format import Format
        from tfshards.prep.exporting.request import as_encoded
        from tfshards.schemas.example import decode_example

        def _path(part, folder):
            return folder / f"{part.split}-{part.name}.toy"

        def _write(request, part, folder, examples):
            _path(part, folder).write_bytes(b"".join(len(each.data).to_bytes(4, "little") + each.data
                                                     for each in examples))

        def _read(request, part, folder):
            data = _path(part, folder).read_bytes()
            while data:
                end = 4 + int.from_bytes(data[:4], "little")
                values = decode_example(data[4:end])
                yield {each.name: as_encoded(each, values[each.name]) for each in request.schema.features}
                data = data[end:]

        TOY = Format("toy", "toys", lambda _: [], _write, _read, lambda *_: {})
        """,
    )
    copy.change(
        "prep/exporting/table.py",
        "from tfshards.prep.exporting.webdataset",
        "from tfshards.prep.exporting.toy import TOY\nfrom tfshards.prep.exporting.webdataset",
    )
    copy.change("prep/exporting/table.py", "PARQUET, FOLDER)}", "PARQUET, FOLDER, TOY)}")
    copy.command("build images photos data --shards 2", photos)
    copy.command("export data out --to toy", photos)
    assert len([*(photos / "out").rglob("*.toy")]) == 2
    assert "toys" in copy.command("export --help", photos)


@pytest.mark.nightly
def test_a_new_compression_is_a_row(copy, photos):
    path = "schemas/compression.py"
    copy.change(path, 'Literal["none", "gzip"]', 'Literal["none", "gzip", "fast"]')
    copy.change(
        path,
        'COMPRESSIONS = ("none"',
        'CODECS["fast"] = replace(CODECS["gzip"], compress=lambda buffers: gzip.compress('
        'b"".join(buffers), 1, mtime=0))\nCOMPRESSIONS = ("none"',
    )
    copy.change(path, "import dataclass", "import dataclass, replace")
    for name in ("gzip", "fast"):
        copy.command(f"build images photos {name} --name d --shards 1 --compression {name}", photos)
    assert '"compression": "fast"' in (photos / "fast" / "dataset.json").read_text()
    copy.command("verify fast --deep", photos)
    copy.command("reshard gzip again --compression fast", photos)
    copy.command("verify again --deep", photos)
    code = "from tfshards import loader; print(sum(1 for _ in loader.load('fast', batch_size=2)))"
    assert copy.run("-c", code, cwd=photos) == "3\n"


def test_a_new_engine_is_a_file_and_a_row(copy, photos):
    copy.add(
        "prep/engines/toy.py",
        """
        from tfshards.prep.engines.table import run_on_threads

        def check_arguments(arguments):
            pass

        def run(work, arguments=()):
            print("toys write", len(work.items), "shards")
            run_on_threads(work)
        """,
    )
    path = "prep/engines/table.py"
    copy.change(path, 'Literal["local", "beam"]', 'Literal["local", "beam", "toy"]')
    copy.change(path, "_MODULES = {\n", '_MODULES = {\n    "toy": "tfshards.prep.engines.toy",\n')
    code = "from tfshards import prep; prep.build(prep.ImageFolder('photos'), 'data', shards=3, engine='toy')"
    assert "toys write 3 shards" in copy.run("-c", code, cwd=photos)


def test_another_kind_of_log_is_a_change_of_two_files(copy, photos):
    path = "prep/progress/lines.py"
    copy.change(path, "import secrets\n", "import logging\nimport secrets\n")
    copy.change(path, "Log: TypeAlias = Callable[[str], None]", "Log: TypeAlias = logging.Logger")
    copy.change(
        path,
        'lambda text, is_warning: log(f"{WARNING}{text}" if is_warning else text)',
        "lambda text, is_warning: (log.warning if is_warning else log.info)(text)",
    )
    # by default it reports nothing
    path = "prep/rewriting/repair.py"
    copy.change(path, "import os\n", "import logging\nimport os\n")
    copy.change(path, "log: Log = lambda _: None", 'log: Log = logging.getLogger("quiet")')
    (photos / "photos" / "a" / "damaged.png").write_bytes(b"")
    code = """
import logging, sys
from tfshards import prep
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
source, log = prep.ImageFolder("photos"), logging.getLogger("toy")
prep.build(source, "data", shards=1, options=prep.Options(max_rejected=1), log=log)
prep.append(source, "data", log=log)
prep.build(source, "default", shards=1, options=prep.Options(max_rejected=1))
"""
    printed = copy.run("-c", code, cwd=photos)
    assert "INFO starting build: 7 examples" in printed
    assert "WARNING 1 of 7 inputs is rejected" in printed
    assert "INFO data is up to date" in printed
    assert "default" not in printed
    assert "starting build" in copy.command("build images photos other --shards 1", photos, status=1)
    (photos / "data" / "labels.txt").unlink()
    assert "labels.txt" in copy.command("verify data --repair", photos)


def test_locks_are_in_one_file(copy, photos):
    copy.change(
        "schemas/locks.py",
        "    if fcntl is None:\n        return True\n",
        '    print("locked", is_shared)\n    return not os.environ.get("TOY")\n',
    )
    assert "locked False" in copy.command("build images photos data --shards 1", photos)
    os.environ["TOY"] = "1"
    try:
        printed = copy.command("build images photos other --shards 1", photos, status=1)
    finally:
        del os.environ["TOY"]
    assert "another build is writing to it" in printed


def test_a_dtype_is_a_row(copy, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2), np.complex128))
    copy.command("build arrays x=x.npy data --shards 1", tmp_path)
    copy.change("schemas/schema.py", '    "complex128": 16,\n', "")
    printed = copy.command("build arrays x=x.npy other --shards 1", tmp_path, status=1)
    assert "complex128" in printed


@pytest.mark.nightly
def test_the_length_of_ids_is_one_number(copy, photos):
    copy.change("schemas/names.py", "ID_DIGITS = 8\n", "ID_DIGITS = 12\n")
    copy.command("build images photos data --shards 2", photos)
    build_id = copy.run("-c", BUILD_ID, "data", cwd=photos).strip()
    assert len(build_id) == 12
    Image.new("RGB", (4, 3), (9, 0, 0)).save(photos / "photos" / "a" / "9.png")
    copy.command("append photos data", photos)
    (photos / "keys.txt").write_text("a/0.png\n")
    copy.command("remove data --keys keys.txt", photos)
    copy.command("verify data --deep", photos)
    copy.command("generations data", photos)
    copy.command("prune data", photos)
    code = "from tfshards import loader; print(len(loader.load('data', batch_size=2)))"
    assert copy.run("-c", code, cwd=photos) == "3\n"
    assert not (photos / "data" / ".build").exists()
