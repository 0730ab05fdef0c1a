"""The command line: exit statuses, output streams, messages, interrupts, progress."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.programs import until
from tfshards.prep import ImageFolder, Options
from tfshards.prep.cli import main as cli
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import read_manifest

COMMAND = [sys.executable, "-m", "tfshards"]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Return a function from arguments to (exit status, stdout, stderr), run in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def dataset(small_folder, tmp_path, quiet_build) -> Path:
    quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=2)
    return tmp_path / "out"


def test_build_images_makes_a_dataset_and_prints_its_contents(small_folder, run):
    status, out, err = run("build", "images", "photos", "data/pets", "--shards", 4)
    assert status == 0
    manifest = read_manifest("data/pets")
    assert (manifest.name, len(manifest.shards), manifest.num_examples) == ("pets", 4, 13)
    lines = out.splitlines()
    assert lines[0] == f"pets, build {manifest.build_id}"
    assert re.fullmatch(r"split +examples +shards +bytes +examples per shard", lines[1])
    assert re.fullmatch(r"train +13 +4 +\d+\.\d KiB +3 to 4", lines[2])
    assert lines[3] == "features: image (image, uint8 ? x ? x 3), label (label, int64), key (bytes, bytes)"
    assert [line.split() for line in lines[4:7]] == [["class", "train"], ["cat", "7"], ["dog", "6"]]
    assert lines[7:] == ["entries: 13 = 13 accepted + 0 rejected + 0 skipped"]
    assert re.fullmatch(r"starting build: 13 examples, \d\.\d KiB, 4 shards\n", err)
    # and again: up to date, the same result
    assert run("build", "images", "photos", "data/pets", "--shards", 4) == (
        0,
        out,
        "data/pets is up to date (sizes of its files were compared; 'tfshards verify' compares contents)\n",
    )


def test_every_option_reaches_the_build(small_folder, run):
    (small_folder / "cat" / "bad.jpg").write_bytes(b"text")
    options = ["--shards", 2, "--shards", "val=1", "--split", "train=70%", "--split", "val=0.3", "--stratify"]
    options += ["--channels=1", "--max-rejected=50%", "--seed=7", "--name=pets"]
    status, _, _ = run("build", "images", "photos", "out", *options, "--", "--direct_num_workers=2")
    assert status == 0
    manifest = read_manifest("out")
    assert manifest.name == "pets"
    assert {name: len(split.shards) for name, split in manifest.splits.items()} == {"train": 2, "val": 1}
    expected = {"channels": 1, "stratify": True, "seed": 7}
    expected |= {"shards": {"train": 2, "val": 1}, "splits": {"train": "7/10", "val": "3/10"}}
    assert expected.items() <= manifest.options.items()
    assert manifest.totals.rejected == 1


HOLDS = "out already holds this build, unless the content of inputs has changed\n"
PLANS = {
    "images": (
        ["images", "photos"],
        ["--shards", "3", "--split", "train=0.7", "--split", "val=0.3", "--stratify", "--seed", "5"],
    ),
    "images by size": (["images", "photos"], ["--shard-size", "300B", "--name", "pets"]),
    "an archive": (
        ["arrays", "all.npz"],
        ["--shards", "3", "--group-by", "site", "--split", "a=.5", "--split", "b=.5"],
    ),
}


@pytest.mark.parametrize(("source", "options"), PLANS.values(), ids=PLANS)
def test_a_plan_writes_nothing_but_fits_the_build(source, options, small_folder, array_files, run, contents):
    array_files(x=np.zeros((20, 5)), y=np.arange(20) % 4)
    # every site has every class, so that no split lacks one
    np.savez("all.npz", x=np.zeros((20, 5)), label=np.arange(20) % 4, site=np.arange(20) // 5)
    before = contents(Path())
    status, out, err = run("plan", *source, "out", *options, "--json")
    assert (status, err, contents(Path())) == (0, "", before)
    plan = json.loads(out)
    assert run("build", *source, "out", *options)[0] == 0
    manifest = read_manifest("out")
    # planned again, it is the same, and recognized as the plan of the dataset
    assert run("plan", *source, "out", *options, "--json") == (0, out, HOLDS)
    assert plan["schema"] == manifest.schema.to_json()
    assert list(plan["splits"]) == list(manifest.splits)
    for name, split in manifest.splits.items():
        planned = plan["splits"][name]
        assert planned["num_examples"] == split.num_examples
        assert planned["num_shards"] == len(split.shards)
        assert planned["examples_per_shard"] == [shard.num_examples for shard in split.shards]
        assert planned["label_counts"] == split.label_counts
        # a record holds the bytes of its source and some more
        more = [s.num_bytes - b for s, b in zip(split.shards, planned["bytes_per_shard"], strict=True)]
        assert all(0 < e < 200 * shard.num_examples for e, shard in zip(more, split.shards, strict=True))


def test_a_plan_reports_what_the_output_folder_holds(dataset, run):
    command = ["plan", "images", "photos", "out"]
    assert run(*command, "--shards", 2)[2] == HOLDS
    status, out, err = run(*command, "--shards", 3)
    assert (status, out.startswith("split ")) == (0, True)
    assert err.startswith("out holds a dataset with other options (--shards); give ")
    manifest = dataset / "dataset.json"
    manifest.write_text("{")
    assert "out/dataset.json was not written by tfshards and is kept; move it away" in run(*command)[2]


def test_a_plan_shows_shards_classes_steps_and_skipped_files(image_folder, run):
    image_folder(
        {f"{'ab'[n % 2]}/{n:03}.png": b"x" * n for n in range(40)}
        | {"c/": b"", "a/notes.txt": b"", ".x": b""}
    )
    status, out, err = run("plan", "images", "photos", "out", "--shards", 3, "--batch-size", 4)
    assert status == 0
    assert err == "warning: the folder 'c' holds no images and is not a class; --class-names can name it\n"
    lines = out.splitlines()
    assert re.fullmatch(r"train +40 +3 +780 B +13 to 14 +\d+ B to \d+ B", lines[1])
    assert [line.split() for line in lines[3:6]] == [["class", "train"], ["a", "20"], ["b", "20"]]
    # 40 // (4 * workers), for 1, 2, 4 and up to 64 workers
    assert lines[7].split() == ["train", "10", "5", "2", "1", "0", "0", "0"]
    assert lines[9:] == ["skipped: 1 hidden", "skipped: 1 not an image"]


def test_all_of_many_classes_are_listed_on_demand(run):
    # class 0 has 1 example, class 1 has 2 and so on, up to 50
    np.save("label.npy", np.repeat(np.arange(50), np.arange(1, 51)))
    assert run("build", "arrays", "label.npy", "out")[0] == 0
    assert "`tfshards info DATASET --all` lists every class" in run("info", "out")[1].splitlines()
    lines = [line.split() for line in run("info", "out", "--all")[1].splitlines()]
    first = lines.index(["class", "train"])
    assert lines[first + 1 : first + 51] == [[f"{n}", f"{n + 1}"] for n in range(50)]
    assert lines[first + 51][0] == "entries:"
    assert run("info", "out", "--all", "--json")[0] == 2
    assert run("show", "out", 2, "--save", "saved.png")[0] == 2
    assert not Path("saved.png").exists()


def test_info_prints_the_dataset_and_its_rejects(image_folder, run):
    image_folder({"a/1.png": 1, "a/2.png": b"", "a/3.jpg": b"text", "b/4.png": 4, "b/x": b""})
    built = run("build", "images", "photos", "out", "--max-rejected", "1/2")[1]
    assert run("info", "out") == (0, built, "")
    assert built.splitlines()[-5:] == [
        "entries: 5 = 2 accepted + 2 rejected + 1 skipped",
        "  rejected: 1 empty",
        "  rejected: 1 unreadable",
        "  skipped: 1 not an image",
        f"  {next(Path('out').glob('rejected-*')).name} lists the rejected inputs",
    ]


def test_verify_exits_with_0_for_an_intact_dataset_and_with_1_otherwise(dataset, run):
    assert run("verify", "out") == (0, "out: sound\n", "")
    assert run("verify", "out", "--deep") == (0, "out: sound\n", "")
    shard = read_manifest("out").shards[1].path
    data = bytearray((dataset / shard).read_bytes())
    data[40] ^= 1
    (dataset / shard).write_bytes(data)
    problem = f"{shard}: its bytes have changed: the digest differs"
    assert run("verify", "out") == (1, f"{problem}\nout: 1 problem\n", "")
    status, out, _ = run("verify", "out", "--deep", "--json")
    assert status == 1
    assert json.loads(out)[0] == {"place": shard, "message": problem.removeprefix(f"{shard}: ")}
    assert len(json.loads(out)) == 2


def test_verify_prints_each_problem_of_a_manifest(dataset, run):
    (dataset / "dataset.json").write_text('{"format_version": 1}')
    status, out, err = run("verify", "out")
    assert (status, err) == (1, "")
    assert "name: is missing\n" in out
    assert out.endswith(" problems\n")


def test_show_prints_why_a_key_was_rejected(image_folder, run):
    image_folder({"1.png": 1, "caf\udce9\n.jpg": b"text"})
    assert run("build", "images", "photos", "out", "--max-rejected", "50%")[0] == 0
    status, out, err = run("show", "out", "caf\udce9\n.jpg")
    assert (status, out) == (1, "")
    assert err.startswith(r"tfshards: out rejected 'caf\udce9\n.jpg' (unreadable): starts with 74 65 78 74,")
    # the rejects file is for people: without it the dataset is intact, and the key is unknown
    next(Path("out").glob("rejected-*")).unlink()
    assert "out has no example with the key" in run("show", "out", "caf\udce9\n.jpg")[2]
    assert run("show", "out", "1.png")[0] == 0


# tests of each option have its other mistakes
IMAGES = "build images photos out"
BEFORE_DISK = {
    "no verb": ("", "tfshards: the following arguments are required: COMMAND; see tfshards --help"),
    "no such verb": ("biuld", "argument COMMAND: invalid choice: 'biuld' (choose from"),
    "no input": ("build", "tfshards build: the following arguments are required: KIND"),
    "no such input": ("build tables", "argument KIND: invalid choice: 'tables' (choose from"),
    "no out": ("build images photos", "tfshards build images: the following arguments are required: DATASET"),
    "an option of Beam": (
        f"{IMAGES} --runner=DirectRunner",
        "unrecognized arguments: --runner=DirectRunner; options of Apache Beam follow a bare --; see",
    ),
    "one word too many": (f"{IMAGES} more", "unrecognized arguments: more"),
    "a misspelled verb": ("biuld", "'completion'); was build meant?; see tfshards --help"),
    "no such option": (f"{IMAGES} --shrads=3", "tfshards build images: unrecognized arguments: --shrads=3; "),
    "a wrong option": (f"{IMAGES} --shrads=3", "; was --shards meant?; see tfshards build images --help"),
    "a misspelled choice": (f"{IMAGES} --format=jpg", "; was jpeg meant?; see"),
    "an option of arrays": (f"{IMAGES} --list x", "unrecognized arguments: --list x"),
    "an option of plan": (f"{IMAGES} --batch-size=3", "unrecognized arguments: --batch"),
    "an option of build": ("plan images photos out --overwrite", "unrecognized arguments: --overwrite"),
    "array rejects": ("plan arrays x.npy out --max-rejected 5%", "unrecognized arguments: --max-rejected"),
    "no such choice": (f"{IMAGES} --duplicates=x", "argument --duplicates: invalid choice: 'x' (choose from"),
    "a word for shards": (f"{IMAGES} --shards=many", "--shards many must be a number, or"),
    "shards twice": (
        f"{IMAGES} --shards=1 --shards=2",
        "--shards 2 gives the number of every split a second time; give it once",
    ),
    "shards of a split twice": (
        f"{IMAGES} --shards=a=1 --shards=a=2",
        "--shards a=2 gives the number of split 'a' a second time; give it once",
    ),
    "shards of a nameless split": (f"{IMAGES} --shards==2", "--shards =2 must be a number, or SPLIT=NUMBER"),
    "no shards of a split": (f"{IMAGES} --shards=val=0", "--shards val=0 must be at least"),
    "number and size": (
        f"{IMAGES} --shards=2 --shard-size=1MB",
        "--shards and --shard-size exclude each other: give one",
    ),
    "a split without a ratio": (f"{IMAGES} --split=train", "--split train must be NAME=RATIO"),
    "a share that is none": (f"{IMAGES} --max-rejected=some", "--max-rejected some must be"),
    "a word for a seed": (f"{IMAGES} --seed=x", "argument --seed: invalid int value: 'x'; see"),
    "an output inside the input": ("build images photos photos/out", "is inside the input photos"),
    "no batch": ("plan images photos out --batch-size=0", "--batch-size 0 must be at least 1"),
    "an array of no kind": ("build arrays x.txt out", "x.txt: must be NAME=FILE.npy, FILE.npy or FILE.npz"),
    "no option of Beam": (f"{IMAGES} -- --workers=2", "Apache Beam: --workers=2 is not a pipeline option"),
    "an option that steers a terminal": ("info out --\x1b[31m", "arguments: --\\x1b[31m; see tfshards info"),
    "an empty input": (["build", "images", "", "out"], "SOURCE is empty; give . for the working directory"),
    "an empty dataset": (["verify", ""], "tfshards: DATASET is empty; give . for the working directory"),
    "a map and a dataset with one": (
        f"{IMAGES} --class-names=a --class-names-from=b",
        "argument --class-names-from: not allowed with argument --class-names",
    ),
    "options for Beam where it has no part": (
        "info out -- --runner=X",
        "only build, reshard, merge, append, remove, relabel and export accept pipeline options",
    ),
    "no example to show": ("show out --first=0", "--first 0 must be at least 1\n"),
    "several images to save": (
        "show out --first=2 --save=x.png",
        "--save writes one image, but --first 2 prints 2 examples; leave it out\n",
    ),
}
FROM_DISK = {
    "no such folder": ("build images gone out", "gone does not exist"),
    "too many shards": (
        f"{IMAGES} --shards=64",
        "tfshards: --shards 64 exceeds the 13 examples of split 'train'; use at most 13\n",
    ),
    "too many shards for one split": (
        f"{IMAGES} --shards=6 --split=train=0.8 --split=val=0.2",
        "--shards 6 exceeds the 3 examples of split 'val'; use at most 3, for example "
        "--shards train=6 --shards val=3\n",
    ),
    "no such array": ("build arrays gone.npy out", "gone.npy: cannot be read: No such file or directory"),
    "a file as output": ("build images photos x.npy", "x.npy is a file; the last argument, DATASET, must"),
    "an output of other files": ("build images photos other", "other holds files but no dataset"),
    "no dataset": ("info photos", "photos is not a dataset: it has no dataset.json."),
    "a file for a dataset": ("show x.npy 1", "x.npy is a file; name the directory that holds dataset.json"),
    "no labels": (f"{IMAGES} --class-names=gone.txt", "gone.txt: cannot be read: No such file or directory"),
    "no dataset with labels": ("plan images photos out --class-names-from=gone", "gone does not exist"),
    "a folder that cannot be made": ("build images photos x.npy/out", "out: cannot be written: Not a dir"),
    "what steers a terminal": (["info", "a\x1b[31m\nb"], "tfshards: a\\x1b[31m\\nb does not exist"),
}


@pytest.mark.parametrize(
    ("arguments", "message", "expected"),
    [pytest.param(*row, 2, id=name) for name, row in BEFORE_DISK.items()]
    + [pytest.param(*row, 1, id=name) for name, row in FROM_DISK.items()],
)
def test_a_mistake_is_reported_briefly(arguments, message, expected, small_folder, tmp_path, run, contents):
    np.save("x.npy", np.arange(4))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    before = contents(tmp_path)
    status, out, err = run(*(arguments.split() if isinstance(arguments, str) else arguments))
    assert (status, out) == (expected, "")
    assert message in err
    assert err.startswith("tfshards")
    assert err.endswith("\n")
    assert err.count("\n") <= 3
    assert contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_a_failed_build_is_reported_in_one_to_three_lines(image_folder, run):
    image_folder({"1.png": 1, "2.png": b"text"})
    status, out, err = run("build", "images", "photos", "out")
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("starting build: ")
    assert lines[1].startswith(
        "tfshards: 1 of 2 inputs is rejected (1 unreadable), more than --max-rejected allows"
    )
    assert re.match(r"out/\.build/[0-9a-f]{8}/rejected\.jsonl lists them; fix them ", lines[3])
    assert lines[2].startswith("  '2.png' (unreadable): starts with ")
    assert len(lines) == 4


def test_a_file_that_cannot_be_written_is_named(dataset, run):
    status, out, err = run("show", "out", "cat/00.png", "--save", "nowhere/1.png")
    assert (status, out) == (1, "")
    assert "1.png: the folder nowhere does not exist; name a file for the image in an existing folder" in err
    status, _, err = run("show", "out", "cat/00.png", "--save", 300 * "a")
    assert (status, err) == (1, f"tfshards: {300 * 'a'}: File name too long\n")


def test_help_lists_all_verbs(run):
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    listed = re.findall(r"^    (\w+)(?: |$)", out, re.MULTILINE)
    looks = ["info", "show", "report", "verify", "audit", "diff", "generations", "restore", "prune"]
    derived = ["reshard", "merge", "append", "remove", "relabel"]
    assert listed == ["build", "plan", *looks, "adopt", *derived, "export", "completion"]
    for verb in listed:
        assert run(verb, "--help")[0] == 0
    for kind in ("images", "arrays", "table"):
        status, out, _ = run("build", kind, "--help")
        assert status == 0
        assert "give its pipeline options after a bare --" in " ".join(out.split())


def test_the_version_is_that_of_the_distribution(run):
    assert run("--version") == (0, f"tfshards {version('tfshards')}\n", "")


def test_the_installed_command_is_the_same(tmp_path):
    command = Path(sys.executable).with_name("tfshards")
    done = subprocess.run([command, "info", tmp_path / "gone"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"tfshards: {tmp_path}/gone does not exist\n"


def test_characters_that_the_terminal_cannot_encode_are_escaped(image_folder, tmp_path, quiet_build):
    out = tmp_path / "caf\udce9"
    quiet_build(ImageFolder(image_folder({"猫/1.png": 1, "犬/1.png": 2})), out, options=Options(name="cats"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "info", out], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u732b" in done.stdout
    done = subprocess.run([*COMMAND, "verify", out], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("caf\\udce9: sound\n")


def test_the_locale_does_not_change_the_bytes(image_folder, tmp_path, quiet_build, contents):
    root = image_folder({"ä/ö.png": 1, "ä/bad.png": b"", "caf\udce9/ü.png": 2})
    quiet_build(ImageFolder(root), tmp_path / "utf8" / "out", options=Options(max_rejected=1))
    settings = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    out = tmp_path / "ascii" / "out"
    for arguments in (["build", "images", root, out, "--max-rejected=100%"], ["show", out, "ä/ö.png"]):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, env={**os.environ, **settings})
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "utf8" / "out") == contents(out)


def test_a_build_needs_no_network(tmp_path):
    alone = ["unshare", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("only root can take the loopback device away")
    np.save(tmp_path / "x.npy", np.arange(9))
    command = [*alone, *COMMAND, "build", "arrays", tmp_path / "x.npy", tmp_path / "out", "--shards=3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "out").num_examples == 9


@pytest.mark.processes
def test_an_interrupted_build_exits_with_130_and_resumes(slow_folder, tmp_path, run, quiet_build, contents):
    arguments = ["build", "images", slow_folder, tmp_path / "out", "--shards=8", "--max-rejected=100%"]
    # enough that the build cannot end before its first shard was seen, on a busy machine either
    for number in range(25):
        shutil.copyfile(slow_folder / "00.bmp", slow_folder / f"more-{number}.bmp")
    process = subprocess.Popen(
        # a shell that runs tests in the background makes its children ignore the signal
        ["env", "--default-signal=INT", *COMMAND, *arguments, "--jobs=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any((tmp_path / "out").glob(f"{AREA_NAME}/*/first/*.done")) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted; run the same command to resume"
    assert "Traceback" not in err
    status, _, err = run(*arguments)
    assert status == 0
    assert re.match(r"resuming the build: [1-8] of 8 shards finished\n", err)
    whole = tmp_path / "whole" / "out"
    quiet_build(ImageFolder(slow_folder), whole, shards=8, options=Options(max_rejected=1))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")


def test_progress_is_a_bar_on_a_terminal(slow_folder, tmp_path):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    line = ["build", "images", slow_folder, tmp_path / "out", "--shards=8", "--max-rejected=100%"]
    process = subprocess.Popen([*COMMAND, *line], stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    written = bytearray()
    try:
        while data := os.read(leader, 4096):
            written += data
    except OSError:
        # the other end of the terminal is closed: the command has ended
        pass
    os.close(leader)
    assert process.wait(60) == 0
    text = written.decode()
    # progress of the two layouts: of 18 images, and of those in the shards that change
    first, _, final = text.partition("balancing after rejects")
    percentages = [int(number) for number in re.findall(r"out: +(\d+)%", first)]
    assert len(set(percentages)) >= 3, text
    assert percentages == sorted(percentages)
    assert percentages[-1] == 100
    # a machine that needs more than a second for an example is shown "s/ examples"
    assert re.search(r"18/18 .*(examples/s|s/ examples).*, \d\.\d MiB\]", first), text
    assert "100%" in final


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback():
    code = """
import sys, tfshards
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "tfshards.schemas":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
tfshards._command()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ninterrupted\n")
