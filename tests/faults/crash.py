"""Faults in writing that the tests of tests/crash find: each was put in by hand, found, and taken out again.

A row holds a name, a file, a text that is once in it, what replaces it, and the test that fails then.
Faults that lose what was not synced are only found by ``test_power_cuts.py``: no other test loses it.
"""

_CRASHES = (
    "tests/crash/test_crashes.py::test_a_command_that_ends_at_any_step_is_completed_by_the_same_command"
)
_BUCKETS = "tests/crash/test_crashes.py::"
_REQUESTS = f"{_BUCKETS}test_a_command_that_ends_at_any_request_is_completed_by_the_same_command"
_OVERTAKEN = f"{_BUCKETS}test_a_pointer_that_another_command_replaced_meanwhile_is_not_overwritten"
_POWER = (
    "tests/crash/test_power_cuts.py::test_every_state_after_a_power_cut_is_the_old_dataset_or_the_new_one"
)

FAULTS: list[tuple[str, str, str, str, str]] = [
    (
        "the pointer is written before the build is complete",
        "prep/building/commit.py",
        "    target.open()\n    target.put_all({**files, **views})\n",
        "    target.open()\n    (target.dataset / MANIFEST_NAME).put(text, target.work)\n"
        "    target.put_all({**files, **views})\n",
        f"{_CRASHES}[build images]",
    ),
    (
        "the pointer is put before the build is complete",
        "prep/building/commit.py",
        "    target.open()\n    target.put_all({**files, **views})\n",
        "    target.open()\n    (target.dataset / MANIFEST_NAME).put(text, target.work)\n"
        "    target.put_all({**files, **views})\n",
        f"{_REQUESTS}[build images]",
    ),
    (
        "the old pointer is removed before the new one is renamed",
        "schemas/storage/local.py",
        "        self.put(data, unfinished)\n",
        "        self.unlink(missing_ok=True)\n        self.put(data, unfinished)\n",
        f"{_CRASHES}[build other options]",
    ),
    (
        "the pointer is replaced in place",
        "schemas/storage/local.py",
        "        self.put(data, unfinished)\n",
        "        self.write_bytes(data)\n",
        f"{_CRASHES}[append]",
    ),
    (
        "finished shards are not compared with their digests",
        "schemas/storage/stored.py",
        "status.e_tag == e_tag if e_tag else self.digest() == digest",
        "status.e_tag == e_tag if e_tag else True",
        f"{_POWER}[build images]",
    ),
    (
        "prune removes the record of a folder before its files",
        "prep/writing/build_folder.py",
        "        self.remove_work()\n        self.root.delete_files(names)\n",
        "        self.remove_work()\n        self.root.delete_files([] if kept else [RECORD_NAME])\n"
        "        self.root.delete_files(names)\n",
        f"{_CRASHES}[prune]",
    ),
    (
        "a folder has its name before its record",
        "schemas/storage/local.py",
        "        yield made\n        made.sync()\n        made.moved(self)\n",
        "        made.moved(self)\n        yield self\n",
        f"{_CRASHES}[build images]",
    ),
    (
        "a resumed build keeps no finished shard",
        "prep/building/write.py",
        "for shard, (_, number) in planned.items() if shard not in kept}",
        "for shard, (_, number) in planned.items()}",
        f"{_CRASHES}[build table]",
    ),
    (
        "the work on a build that was committed stays",
        "prep/building/output.py",
        "                BuildFolder(folder, state.current).remove_work()\n",
        "                pass\n",
        "tests/prep/test_output.py::test_what_a_killed_build_left_after_its_commit_goes_with_the_next_command",
    ),
    (
        "a part of an export is written under its name",
        "prep/exporting/export.py",
        '    unfinished = self.work / f"{path.name}.{secrets.token_hex(8)}"\n',
        "    make_folder(path.parent)\n        unfinished = path\n",
        f"{_CRASHES}[export to WebDataset]",
    ),
    (
        "adopt leaves the folder of a killed one",
        "prep/adoption/adopt.py",
        "        remove_staged(folder)\n",
        "",
        f"{_CRASHES}[adopt]",
    ),
    (
        "adopt changes labels that the pointer names",
        "prep/adoption/adopt.py",
        "else state.new_folder(draft.build_id)",
        "else state.folders[0] if state.folders else state.new_folder(draft.build_id)",
        f"{_CRASHES}[adopt with other labels]",
    ),
    (
        "the pointer is put without a condition",
        "schemas/storage/remote.py",
        "                self.store.put(self.key, data, mode=mode, use_multipart=False)\n",
        "                self.store.put(self.key, data, use_multipart=False)\n",
        f"{_OVERTAKEN}[build table]",
    ),
    (
        "files are not synced",
        "schemas/storage/local.py",
        "        os.fsync(self._file.fileno())\n",
        "",
        f"{_POWER}[build images]",
    ),
    (
        "the names of shards are not synced",
        "prep/building/commit.py",
        '    target.root.sync("index")\n',
        "",
        f"{_POWER}[build images]",
    ),
    (
        "no folder is synced",
        "schemas/storage/local.py",
        "        for path in (*map(self.joinpath, inner), self):\n",
        "        for path in [self] * self.is_file():\n",
        f"{_POWER}[build images]",
    ),
    (
        "the name of a new dataset is not synced",
        "prep/building/output.py",
        "            for path in created[::-1]:\n                path.parent.sync()\n",
        "",
        f"{_POWER}[build images]",
    ),
    (
        "a repaired file is written in place",
        "prep/building/generations.py",
        "        target.write(blocks, unfinished)\n",
        '        target.write_bytes(b"".join(blocks))\n',
        f"{_CRASHES}[repair]",
    ),
    (
        "a further build of the same plan is written into the folder of the first one",
        "prep/building/state.py",
        "next(name for name in names if name not in used)",
        "next(names)",
        f"{_CRASHES}[build other inputs]",
    ),
]
