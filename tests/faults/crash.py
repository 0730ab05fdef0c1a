"""Faults in writing that the tests of tests/crash find: each was put in by hand, found, and taken out again.

A row holds a name, a file, a text that is once in it, what replaces it, and the test that fails then.
Faults that lose what was not synced are only found by ``test_power_cuts.py``: no other test loses it.
"""

_CRASHES = (
    "tests/crash/test_crashes.py::test_a_command_that_ends_at_any_step_is_completed_by_the_same_command"
)
_OTHERS = "tests/crash/test_crashes.py::test_another_command_after_one_that_ended_takes_nothing_of_it"
_BUCKETS = "tests/crash/test_crashes_in_buckets.py::"
_REQUESTS = f"{_BUCKETS}test_a_command_that_ends_at_any_request_is_completed_by_the_same_command"
_OVERTAKEN = f"{_BUCKETS}test_a_pointer_that_another_command_replaced_meanwhile_is_not_overwritten"
_POWER = (
    "tests/crash/test_power_cuts.py::test_every_state_after_a_power_cut_is_the_old_dataset_or_the_new_one"
)

FAULTS: list[tuple[str, str, str, str, str]] = [
    (
        "the pointer is written before the shards are in place",
        "prep/building/commit.py",
        "    area.place(manifest, others)\n",
        "    write_manifest(manifest, state.folder, state.version)\n    area.place(manifest, others)\n",
        f"{_CRASHES}[build images]",
    ),
    (
        "the pointer is put before the shards are copied",
        "prep/building/commit.py",
        "    area.place(manifest, others)\n",
        "    write_manifest(manifest, state.folder, state.version)\n    area.place(manifest, others)\n",
        f"{_REQUESTS}[build images]",
    ),
    (
        "the old pointer is removed before the new one is renamed",
        "schemas/build_area.py",
        "            new.replace(dataset / path)\n",
        "            (dataset / path).unlink(missing_ok=True)\n            new.replace(dataset / path)\n",
        f"{_CRASHES}[build other options]",
    ),
    (
        "files are replaced in place",
        "schemas/build_area.py",
        "            new.replace(dataset / path)\n",
        "            (dataset / path).write_bytes(data)\n            new.unlink()\n",
        f"{_CRASHES}[append]",
    ),
    (
        "restore writes the pointer in place",
        "prep/building/prune.py",
        "        replace_manifest(manifest, state, area.root)\n",
        "        (folder / 'dataset.json').write_text(manifest.to_text())\n"
        "        replace_manifest(manifest, state, area.root)\n",
        f"{_CRASHES}[restore]",
    ),
    (
        "files of the old generation are removed before the commit",
        "prep/building/commit.py",
        "    write_manifest(manifest, folder, state.version, staging)\n",
        "    for path in data_files(old) if old else ():\n"
        "        (folder / path).unlink(missing_ok=True)\n"
        "    write_manifest(manifest, folder, state.version, staging)\n",
        f"{_CRASHES}[build other options]",
    ),
    (
        "the old generation is kept after the commit",
        "prep/building/commit.py",
        "        _keep(old, folder)\n    write_manifest(manifest, folder, state.version, staging)\n",
        "        pass\n    write_manifest(manifest, folder, state.version, staging)\n"
        "    if old is not None and is_kept:\n        _keep(old, folder)\n",
        f"{_CRASHES}[build other options]",
    ),
    (
        "the old generation is kept after the commit in a store",
        "prep/building/commit.py",
        "        _keep(old, folder)\n    write_manifest(manifest, folder, state.version, staging)\n",
        "        pass\n    write_manifest(manifest, folder, state.version, staging)\n"
        "    if old is not None and is_kept:\n        _keep(old, folder)\n",
        f"{_REQUESTS}[build other options]",
    ),
    (
        "shards of inputs that changed since are taken for finished",
        "prep/building/build.py",
        "        forget_changed(plan, reader, area, options.compression, checksum=checksum)\n",
        "",
        f"{_OTHERS}[build images]",
    ),
    (
        "what is moved into the dataset is not announced",
        "prep/writing/area.py",
        "        self.announce(manifest)\n        if isinstance(self.out, RemotePath)",
        "        if isinstance(self.out, RemotePath)",
        f"{_OTHERS}[build other options]",
    ),
    (
        "what an unfinished build moved into the dataset stays",
        "prep/building/output.py",
        "            (state.folder / path).unlink(missing_ok=True)\n        area.remove()\n",
        "            pass\n        area.remove()\n",
        f"{_OTHERS}[build other options]",
    ),
    (
        "prune removes a manifest before the files that it names",
        "prep/building/prune.py",
        "    for some in ([path for path in files if path not in manifests], manifests):\n",
        "    for some in (manifests, [path for path in files if path not in manifests]):\n",
        f"{_CRASHES}[prune]",
    ),
    (
        "a folder loses its record before its other files",
        "schemas/build_area.py",
        "    with suppress(FileNotFoundError):\n        for path in folder.iterdir():\n",
        "    with suppress(FileNotFoundError):\n        (folder / RECORD_NAME).unlink()\n"
        "        for path in folder.iterdir():\n",
        f"{_CRASHES}[build images]",
    ),
    (
        "a resumed build keeps no finished shard",
        "prep/building/planned_build.py",
        "        finished = self._intact(phase, digests, first, final)\n",
        "        finished: dict[ShardId, FinishedShard] = {}\n",
        f"{_CRASHES}[build table]",
    ),
    (
        "a part of an export is written under its name",
        "prep/exporting/format.py",
        '            unfinished = self.work / f"{path.name}.{secrets.token_hex(8)}"\n',
        "            make_folder(path.parent)\n            unfinished = path\n",
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
        "            delete(folder, [MANIFEST_NAME])\n            sync(folder)\n            replaced = None\n",
        "            pass\n",
        f"{_CRASHES}[adopt with other labels]",
    ),
    (
        "adopt keeps labels of a killed one",
        "prep/adoption/adopt.py",
        "    named |= {companion(path) for path in chosen.paths for companion in (labels_path, keys_path)}\n",
        "",
        f"{_CRASHES}[adopt without labels]",
    ),
    (
        "the pointer is put without a condition",
        "schemas/storage/verbs.py",
        "            path.store.put(path.key, data, mode=mode, use_multipart=False)\n",
        "            path.store.put(path.key, data, use_multipart=False)\n",
        f"{_OVERTAKEN}[build table]",
    ),
    (
        "a build area in a store loses its record first",
        "schemas/storage/verbs.py",
        '    kept = (folder / last).key if last else ""\n',
        '    kept = ""\n    folder.delete([(folder / last).key])\n',
        f"{_REQUESTS}[build images]",
    ),
    (
        "files are not synced",
        "schemas/storage/writing.py",
        "        os.fsync(self._file.fileno())\n",
        "",
        f"{_POWER}[build images]",
    ),
    (
        "the names of shards in the dataset are not synced",
        "prep/writing/area.py",
        "        for folder in sorted({(self.out / path).parent for path in names}):\n"
        "            sync_directory(folder)\n",
        "",
        f"{_POWER}[build images]",
    ),
    (
        "the name of a new dataset is not synced",
        "prep/building/output.py",
        "            sync(*(path.parent for path in reversed(created)))\n",
        "",
        f"{_POWER}[build images]",
    ),
    (
        "an unfinished build with other inputs is not discarded",
        "prep/building/build.py",
        "        discard_others(state, wanted.plan_id, wanted.options)\n",
        "",
        f"{_OTHERS}[build other options]",
    ),
    (
        "an export is not recorded before its first part",
        "prep/exporting/export.py",
        '            put(path, json.dumps(record, indent=1).encode("ascii"), work)\n',
        "            return\n",
        f"{_CRASHES}[export to Parquet]",
    ),
    (
        "a repaired file is written in place",
        "schemas/build_area.py",
        "            new.replace(dataset / path)\n",
        "            (dataset / path).write_bytes(data)\n            new.unlink()\n",
        f"{_CRASHES}[repair]",
    ),
    (
        "what another build with the same plan moved into the dataset stays",
        "prep/building/commit.py",
        "                (folder / path).unlink(missing_ok=True)\n            area.remove()\n",
        "                pass\n            area.remove()\n",
        f"{_OTHERS}[build other inputs]",
    ),
]
