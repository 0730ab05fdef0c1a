"""After a power cut, a run resumes from the newest sound checkpoint, or an error names all of them."""

import itertools
import os
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


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def fill_with_zeros(path):
    path.write_bytes(bytes(path.stat().st_size))


def flip(path):
    flip_bit(path, path.stat().st_size // 3)


DAMAGES = [truncate, empty, fill_with_zeros, flip, Path.unlink]
DATA, INDEX = "ckpt-3.data-00000-of-00001", "ckpt-3.index"


CASES = [*itertools.product([DATA, INDEX], DAMAGES)]


@pytest.mark.parametrize(("name", "damage"), mostly_nightly(CASES, CASES[::6]))
def test_the_checkpoint_before_a_damaged_one_is_taken(numbered, saved, name, damage):
    folder, results = saved
    damage(folder / name)
    expected = (
        rf"{folder}/{name} is (damaged \(.+\)|missing); training resumes from {folder}/ckpt-2, which is"
    )
    with pytest.warns(UserWarning, match=expected) as caught:
        same(trained(numbered, folder, 2), results[2])
    assert {warning.filename for warning in caught if "resumes from" in str(warning.message)} == {
        str(Path(__file__).with_name("test_resume_mistakes.py"))
    }
    with pytest.warns(UserWarning, match=expected):
        same(trained(numbered, folder, EPOCHS + 1), results[EPOCHS + 1])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s).*resumes from")
        assert loader.Resume(folder).progress.epoch == EPOCHS + 1


def same(found, expected):
    assert found[0] == expected[0], "the position"
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


def name_one_that_is_missing(path):
    path.write_text('model_checkpoint_path: "ckpt-7"\n')


LOST = [truncate, empty, fill_with_zeros, name_one_that_is_missing]


@pytest.mark.parametrize("damage", mostly_nightly(LOST, LOST[2:]))
def test_without_the_file_that_names_it_the_newest_checkpoint_is_taken(numbered, saved, damage):
    folder, results = saved
    damage(folder / "checkpoint")
    lost = (
        "ckpt-7.index is missing" if damage is name_one_that_is_missing else "checkpoint is empty or damaged"
    )
    with pytest.warns(UserWarning, match=f"{folder}/{lost}; training resumes from {folder}/ckpt-3, which is"):
        same(trained(numbered, folder, EPOCHS + 1), results[EPOCHS + 1])
    assert loader.Resume(folder).progress.epoch == EPOCHS + 1


def test_a_checkpoint_that_is_named_is_taken_before_newer_ones(numbered, saved):
    folder, results = saved
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-2"\n')
    truncate(folder / DATA)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s).*resumes from")
        same(trained(numbered, folder, EPOCHS + 1), results[EPOCHS + 1])


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
    empty(folder / "checkpoint")
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
