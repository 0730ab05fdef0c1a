"""After a power cut, a run resumes from the newest sound checkpoint, or an error names all of them."""

import os
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.schemas import InputError

from .conftest import flip_bit
from .test_resume_mistakes import fit, model_of

EPOCHS = 3


def trained(numbered, folder, epochs):
    """Train to the end of an epoch, from the newest checkpoint; return the position and all weights."""
    tf.keras.utils.set_random_seed(1)
    model = model_of(optimizer="adam")
    resume, _ = fit(numbered, folder, model, epochs=epochs, load_epochs=epochs + 1)
    weights = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    return (resume.progress.epoch, resume.progress.step), weights


@pytest.fixture(scope="module")
def runs(numbered, tmp_path_factory):
    """Return the folder and the result of undisturbed runs by their number of epochs."""
    folders = {epochs: tmp_path_factory.mktemp("runs") / str(epochs) for epochs in range(1, EPOCHS + 2)}
    return {epochs: (folder, trained(numbered, folder, epochs)) for epochs, folder in folders.items()}


@pytest.fixture
def saved(runs, tmp_path):
    """A folder with the checkpoints 2 and 3, and the results of undisturbed runs by their epochs."""
    shutil.copytree(runs[EPOCHS][0], tmp_path / "saved")
    assert sorted(path.stem for path in (tmp_path / "saved").glob("*.index")) == ["ckpt-2", "ckpt-3"]
    return tmp_path / "saved", {epochs: result for epochs, (_, result) in runs.items()}


def same(found, expected):
    assert found[0] == expected[0], "the position"
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


DAMAGES = [
    truncate,
    lambda path: os.truncate(path, 0),
    lambda path: path.write_bytes(bytes(path.stat().st_size)),
    Path.unlink,
    lambda path: flip_bit(path, path.stat().st_size // 3),
]
DATA, INDEX = "ckpt-3.data-00000-of-00001", "ckpt-3.index"


def name(number):
    return lambda path: path.write_text(f'model_checkpoint_path: "ckpt-{number}"\n')


# damages by file, what a warning has of them, and the number of the checkpoint that is taken
DAMAGED = [
    ({file: each}, rf"{file} is (damaged \(.+\)|missing)", 2) for file in (DATA, INDEX) for each in DAMAGES
]
LOST = [({"checkpoint": each}, "checkpoint is empty or damaged", 3) for each in DAMAGES[:3]]
NAMED = [
    ({"checkpoint": name(7)}, "ckpt-7.index is missing", 3),
    # before newer ones
    ({"checkpoint": name(2), DATA: truncate}, "", 2),
]


@pytest.mark.parametrize(
    ("damages", "message", "number"),
    mostly_nightly([*DAMAGED, *LOST, *NAMED], [*DAMAGED[::6], LOST[2], *NAMED]),
)
def test_the_newest_sound_checkpoint_is_taken(numbered, saved, damages, message, number):
    folder, results = saved
    for file, damage in damages.items():
        damage(folder / file)
    for epochs in sorted({number, EPOCHS + 1} - {EPOCHS}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same(trained(numbered, folder, epochs), results[epochs])
        found = [each for each in caught if "resumes from" in str(each.message)]
        assert len(found) == bool(message)
        for each in found:
            where = rf"{folder}/{message}; training resumes from {folder}/ckpt-{number}, which is"
            assert re.search(where, str(each.message))
            assert each.filename == str(Path(__file__).with_name("test_resume_mistakes.py"))
    assert loader.Resume(folder).progress.epoch == EPOCHS + 1


def test_if_no_checkpoint_can_be_read_the_error_names_them(saved):
    folder, _ = saved
    truncate(folder / DATA)
    (folder / "ckpt-2.index").unlink()
    faults = rf"{folder}/{DATA} is damaged \(.+\), {folder}/ckpt-2.index is missing;"
    with pytest.raises(InputError, match=faults):
        loader.Resume(folder)
    for path in folder.glob("ckpt-*"):
        path.unlink()
    with raises(InputError, "checkpoints-unreadable"):
        loader.Resume(folder)
    os.truncate(folder / "checkpoint", 0)
    with raises(InputError, "checkpoints-unreadable"):
        loader.Resume(folder)


def test_only_a_first_checkpoint_that_was_not_finished_is_passed_over(saved):
    folder, _ = saved
    for path in [folder / "checkpoint", *folder.glob("ckpt-*")]:
        if path.name != DATA:
            path.unlink()
    with raises(InputError, "checkpoints-unreadable"):
        loader.Resume(folder)
    (folder / DATA).rename(folder / DATA.replace("3", "1"))
    with pytest.warns(UserWarning, match=r"ckpt-1.index is missing: the first checkpoint was not finished; "):
        assert loader.Resume(folder).progress.epoch == 0


def test_each_checkpoint_is_flushed_to_disk(numbered, tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def noted(descriptor):
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    trained(numbered, tmp_path / "run", 1)
    # the entries of the folder last
    assert sorted(flushed[:-1]) == ["checkpoint", DATA.replace("3", "1"), INDEX.replace("3", "1")]
    assert flushed[-1] == "run"


@pytest.mark.nightly
def test_checkpoints_may_be_in_a_file_system_of_tensorflow(numbered):
    same(trained(numbered, "ram://run", 1), trained(numbered, "ram://run", 1))
    assert loader.Resume("ram://run").progress.epoch == 1
