"""What a command may leave when it ends too early: the old dataset, or the new one."""

import numpy as np

from tests.format_reader import read_dataset

from .commands import POINTER, Command, Files


def examples(files: Files, folder: str, pointer: bytes) -> dict[str, list[dict[str, object]]]:
    """Return the examples of each split that a pointer names, which may be an earlier one of its folder.

    Raises:
        ValueError, KeyError: a file is damaged, or missing.
    """
    inside = {path.removeprefix(f"{folder}/"): data for path, data in files.items()}
    splits = read_dataset(inside, pointer, are_encoded=True)
    return {
        name: [{n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in each.items()} for each in split]
        for name, split in splits.items()
    }


def judge(command: Command, files: Files, old: Files, new: Files) -> str:
    """Return ``"old"`` or ``"new"``, whichever a reader finds now.

    Args:
        command: the command that has ended too early.
        files: the files that it left, by path.
        old: those in which it began.
        new: those that it leaves undisturbed.

    Raises:
        AssertionError: a reader finds neither, or something was changed that is not the command's.
        ValueError: the dataset cannot be read.
    """
    inside = f"{command.out}/"
    for path, data in old.items():
        if not path.startswith(inside) or "mine" in path:
            assert files.get(path) == data, f"{path} was changed"
    if command.makes == "repair":
        for path, data in new.items():
            assert files.get(path) in (old.get(path), data), f"{path} is neither old nor new"
        return "old"
    if command.makes == "files":
        for path, data in new.items():
            is_journal = any(name.startswith(".") for name in path.split("/"))
            assert is_journal or files.get(path, data) == data, f"{path} is not complete"
        return "old"
    pointer = f"{inside}{POINTER}"
    found = files.get(pointer)
    assert found in (old.get(pointer), new[pointer]), f"{pointer} is neither old nor new"
    if found is not None:
        assert examples(files, command.out, found) == examples(
            new if found == new[pointer] else old, command.out, found
        )
    if pointer in old and not command.prunes:
        # programs that began earlier read the old dataset to its end
        examples(files, command.out, old[pointer])
    return "new" if found == new[pointer] and found != old.get(pointer) else "old"
