"""Hostile trees and names: which files are read, which are skipped, and how names are printed."""

import hashlib
import json
import os
import socket
import stat
from pathlib import Path

import pytest

from tests.surface.command import run, run_json
from tfshards.prep import ImageFolder, Options

ANY = Options(max_rejected=1)


def walk(root: Path, *, follow_links: bool = False) -> tuple[list[str], dict[str, int]]:
    """Return the sorted keys found in a folder, and the skipped entries by reason."""
    listing = ImageFolder(root, follow_links=follow_links, as_is=True).stage(None).listing()
    return sorted(os.fsdecode(key).removeprefix("x/") for key in listing.keys), dict(listing.skipped)


def unix_socket(path: Path) -> None:
    # its path may have about a hundred bytes
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [os.mkfifo, unix_socket, device])
def test_special_files_are_skipped_and_never_opened(make, image_folder):
    root = image_folder({"cat/1.png": 1})
    for name in ("x.png", "x"):
        make(root / "cat" / name)
        os.symlink(root / "cat" / name, root / "cat" / f"link to {name}.png")
    for follow_links in (False, True):
        assert walk(root, follow_links=follow_links) == (["cat/1.png"], {"special file": 4})


# (a tree of links: name -> target), what is found with and without --follow-links
OUT, TO_FOLDER = {"link out of the root": 1}, {"link to a folder": 1}
BROKEN = {"broken link": 1}
LINKS = {
    "a file in the folder": ({"b.png": "cat/1.png"}, ["b.png"], {}, ["b.png"], {}),
    "a file outside": ({"b.png": "../outside/2.png"}, [], OUT, ["b.png"], {}),
    "a folder whose name begins like the root's": ({"b.png": "../photos2/3.png"}, [], OUT, ["b.png"], {}),
    "a folder outside": ({"dog": "../outside"}, [], TO_FOLDER, ["dog/2.png"], {}),
    "itself": ({"b.png": "b.png"}, [], BROKEN, [], BROKEN),
    "nothing": ({"b.png": "gone"}, [], BROKEN, [], BROKEN),
    "the root": ({"cat/up": ".."}, [], TO_FOLDER, [], {"link loop": 1}),
    "a hidden one": ({".b.png": "../outside/2.png"}, [], {"hidden": 1}, [], {"hidden": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("links", "found", "skipped", "followed", "left"), LINKS.values(), ids=LINKS)
def test_links_lead_out_of_the_root_only_on_request(links, found, skipped, followed, left, image_folder):
    root = image_folder({"x/cat/1.png": 1})
    image_folder({"2.png": 2}, name="outside")
    image_folder({"3.png": 3}, name="photos2")
    for name, target in links.items():
        # from a class, which is one folder deeper
        os.symlink(f"../{target}" if target.startswith("../") else target, root / "x" / name)
    assert walk(root) == (sorted([*found, "cat/1.png"]), skipped)
    assert walk(root, follow_links=True) == (sorted([*followed, "cat/1.png"]), left)


def test_two_folders_that_link_to_each_other_do_not_loop(image_folder):
    root = image_folder({"a/1.png": 1, "b/2.png": 2})
    os.symlink("../b", root / "a" / "to")
    os.symlink("../a", root / "b" / "to")
    assert walk(root, follow_links=True) == (
        ["a/1.png", "a/to/2.png", "b/2.png", "b/to/1.png"],
        {"link loop": 2},
    )


def test_rejected_files_of_any_name_are_found_by_it(image_folder, tmp_path, quiet_build):
    names = [f"{name}.jpg" for name in ("caf\udce9", "\udcff\udc80", "new\nline", "\x1b[31mred", "\u202egnp")]
    root = image_folder({"1.png": 1, **dict.fromkeys(names, b"no image")})
    quiet_build(ImageFolder(root), tmp_path / "out", options=ANY)
    for name in names:
        assert run_json(["show", tmp_path / "out", name])[1]["code"] == "key-rejected"


def test_names_in_a_foreign_manifest_are_printed_escaped(image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(image_folder({"cat/1.png": 1, "dog/2.png": 2, "notes\x1b.txt": b""})), out)
    text = (out / "dataset.json").read_text()
    document = json.loads(text)
    document["totals"]["reasons"]["skipped"] = {"\x1b[31m\nred": 1}
    document["totals"]["conversions"] = {"\u202edone": 1}
    # as docs/format.md has it: of the text with zeros in place of the digest
    before, mark, rest = json.dumps(document).rpartition('"digest": "sha256:')
    digest = hashlib.sha256(f"{before}{mark}{'0' * 64}{rest[64:]}".encode()).hexdigest()
    (out / "dataset.json").write_text(before + mark + digest + rest[64:])
    status, text, _ = run(["info", out])
    assert status == 0
    assert r"\x1b[31m\nred" in text
    assert r"\u202edone" in text
    assert all(line.isprintable() for line in text.split("\n"))
