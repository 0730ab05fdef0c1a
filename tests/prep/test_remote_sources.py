"""Sources and tables in object stores give the datasets that their copies on a disk give."""

import io
from contextlib import ExitStack

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import encoded, write_jsonl, write_parquet, write_text
from tests.reported import logged
from tests.storage import conftest
from tests.storage.faults import FaultProxy
from tests.storage.servers import s3_client
from tests.surface.command import run
from tfshards.prep import Arrays, ImageFolder, Options, Table, build, plan, verify
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import InputError, OptionsError, read_manifest

server, bucket, upload = conftest.server, conftest.bucket, conftest.upload

GRAY = io.BytesIO()
Image.new("L", (4, 4), 2).save(GRAY, "PNG")
OPTIONS = Options(max_rejected=0.5)


def put(bucket, key, data):
    s3_client(bucket.server).put_object(Bucket=bucket.name, Key=key, Body=data)


@pytest.fixture
def proxied(bucket, upload, monkeypatch):
    """Copy a folder into the bucket; return its URL, and a proxy that its requests pass."""
    with ExitStack() as stack:

        def run(folder):
            url = upload(folder)
            proxy = stack.enter_context(FaultProxy(bucket.server.endpoint))
            for name, value in bucket.server.behind(proxy.endpoint).environment.items():
                monkeypatch.setenv(name, value)
            return url, proxy

        yield run


def check_same(local, remote, tmp_path, contents):
    """Build from both, and compare the datasets."""
    logs = [], []
    for source, name, log in ((local, "local", logs[0]), (remote, "remote", logs[1])):
        logged(build, log.append)(source, tmp_path / name / "out", shards=2, seed=1, options=OPTIONS)
    one, two = contents(tmp_path / "local"), contents(tmp_path / "remote")
    assert one.keys() == two.keys()
    # which has a hash of the times of files
    record = f"out/{read_manifest(tmp_path / 'local' / 'out').folder}/build.json"
    assert {name for name in one if one[name] != two[name]} <= {record}
    return logs


ODD = ["50%", "%41", "a+b", "a#b", "a?b", "&", "😀"]
FOLDERS = {
    "flat": ({f"{n}.png": n for n in range(30)} | {"bad.png": b"x", "a.md": b"no", "extensionless": 7}, {}),
    "masks": ({f"images/{n}.png": 5 * n for n in range(9)}
              | {f"masks/{n}.png": GRAY.getvalue() for n in range(8)}, {}),
    "patterns": ({f"{c}/{n}.png": n for n in range(9) for c in "ab"} | {".hidden/x.png": 1, "a/.x.png": 2},
                 {"include": ["**/[0-6].png"], "class_names": ["b", "a"]}),
    "odd": ({f"é ü/{name}.png": n for n, name in enumerate(ODD)}, {"as_is": True}),
}  # fmt: skip


@pytest.mark.parametrize(("files", "options"), FOLDERS.values(), ids=FOLDERS)
def test_objects_give_the_dataset_of_their_copy(files, options, image_folder, upload, tmp_path, contents):
    folder = image_folder(files)
    sources = (ImageFolder(root, **options) for root in (folder, upload(folder)))
    logs = check_same(*sources, tmp_path, contents)
    local, remote = ([line for line in each if line.startswith("warning")] for each in logs)
    assert [line.replace("/local/", "/remote/") for line in local] == remote


def test_a_folder_needs_one_listing_and_a_request_per_image(image_folder, proxied, tmp_path, quiet_build):
    url, proxy = proxied(image_folder({f"{n % 3}/{n}.jpg": n for n in range(60)}))
    quiet_build(ImageFolder(url), tmp_path / "out", shards=2)
    assert proxy.count() == {"list": 1, "get": 60}
    proxy.clear()
    quiet_build(ImageFolder(url), tmp_path / "out", shards=2)
    assert proxy.count() == {"list": 1}


def test_keys_that_name_no_file_are_skipped(bucket, image_folder, tmp_path, quiet_build):
    for key in ("data/", "data/cat/", "data/empty/", "data/.git/", "data/cat/note", "data/cat/a.png/b.png"):
        put(bucket, key, b"")
    for key in ("cat/1.png", "cat/z.png"):
        put(bucket, f"data/{key}", GRAY.getvalue())
    put(bucket, "data2/1.png", GRAY.getvalue())
    source = ImageFolder(f"{bucket.url}/data", as_is=True)
    totals = quiet_build(source, tmp_path / "out", shards=1, options=OPTIONS).totals
    assert totals.reasons["rejected"] == {"empty": 1}
    assert (totals.accepted, totals.entries) == (2, 3)
    put(bucket, "data/cat//x.png", GRAY.getvalue())
    with pytest.raises(InputError, match="rename that object"):
        quiet_build(source, tmp_path / "other", shards=1, options=OPTIONS)


CHANGES = {"replaced": "changed after the build listed it", "removed": "cannot be read"}


@pytest.mark.parametrize("change", CHANGES)
def test_an_object_that_changes_during_the_build_ends_it(
    change, bucket, upload, image_folder, tmp_path, quiet_build, monkeypatch
):
    source = ImageFolder(upload(image_folder({f"{n}.png": n for n in range(9)})))
    stage = ImageFolder.stage

    def staged(self, folder, **given):
        found = stage(self, folder, **given)
        if change == "replaced":
            put(bucket, "data/7.png", GRAY.getvalue())
        else:
            s3_client(bucket.server).delete_object(Bucket=bucket.name, Key="data/7.png")
        return found

    monkeypatch.setattr(ImageFolder, "stage", staged)
    with raises(InputError, CHANGES[change], f"{bucket.url}/data/7.png"):
        quiet_build(source, tmp_path / "out", shards=1)


GIVEN = [
    {"x": "{}/x.npy", "label": "{}/label.npy"},
    ["{}/all.npz"],
]


@pytest.mark.parametrize("given", GIVEN, ids=["npy", "npz"])
def test_arrays_in_a_store_give_the_dataset_of_their_copies(given, upload, tmp_path, contents):
    folder = tmp_path / "arrays"
    folder.mkdir()
    x = np.random.default_rng(0).normal(size=(60, 3, 5)).astype(np.float32)
    label = np.arange(60) % 4
    np.save(folder / "x.npy", x)
    np.save(folder / "label.npy", label)
    np.savez_compressed(folder / "all.npz", x=x, label=label)

    def source(where):
        if isinstance(given, list):
            return Arrays([each.format(where) for each in given])
        return Arrays({name: each.format(where) for name, each in given.items()})

    url = upload(folder)
    check_same(source(folder), source(url), tmp_path, contents)
    one, two = (repr(plan(source(root), tmp_path / "new", shards=2)) for root in (url, folder))
    assert one == two


def test_workers_of_beam_need_no_file_of_this_machine(bucket, tmp_path, contents, monkeypatch):
    np.save(tmp_path / "x.npy", np.arange(60).reshape(20, 3))
    source, url = Arrays({"x": tmp_path / "x.npy", "label": np.arange(20) % 4}), f"{bucket.url}/out"
    build(source, tmp_path / "out", shards=2)
    read = StagedReader.read

    def read_elsewhere(self, *given):
        (tmp_path / "x.npy").unlink(missing_ok=True)
        return read(self, *given)

    monkeypatch.setattr(StagedReader, "read", read_elsewhere)
    build(source, url, shards=2, beam_args=["--runner=DirectRunner"])
    assert not (tmp_path / "x.npy").exists()
    found = s3_client(bucket.server).get_object(Bucket=bucket.name, Key="out/dataset.json")["Body"].read()
    assert found == contents(tmp_path / "out")["dataset.json"]


def test_an_array_is_read_in_blocks_of_one_version(proxied, tmp_path, quiet_build):
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "x.npy", np.arange(500_000).reshape(500, 1000))
    url, proxy = proxied(folder)
    quiet_build(Arrays({"x": f"{url}/x.npy"}), tmp_path / "out", shards=2)
    assert proxy.count() == {"head": 1, "get": 4}
    proxy.clear()
    quiet_build(Arrays({"x": f"{url}/x.npy"}), tmp_path / "out", shards=2)
    with raises(InputError, "y.npy: cannot be read", code="unreadable"):
        quiet_build(Arrays({"x": f"{url}/y.npy"}), tmp_path / "out2")


def test_a_bucket_may_hold_source_class_names_and_dataset(image_folder, upload, bucket, tmp_path, contents):
    folder = image_folder({f"{n % 2}/{n}.png": n for n in range(9)})
    url = upload(folder)
    put(bucket, "names.txt", b"1\n0\n")
    with raises(OptionsError, "is inside the input"):
        build(ImageFolder(url), f"{url}/out")
    words = ["--shards", "2", "--class-names"]
    assert run(["build", "images", url, f"{bucket.url}/out", *words, f"{bucket.url}/names.txt"]).status == 0
    assert run(["build", "images", url, f"{bucket.url}/2", *words, f"{bucket.url}/none.txt"]).status == 1
    build(ImageFolder(folder, class_names=["1", "0"]), tmp_path / "out", shards=2)
    found = s3_client(bucket.server).get_object(Bucket=bucket.name, Key="out/dataset.json")["Body"].read()
    assert found == contents(tmp_path / "out")["dataset.json"]


# Tables in object stores, and tables that name images in stores


@pytest.fixture
def photos(image_folder):
    """A folder of images."""
    return image_folder({f"sub/{number}.png": number for number in range(12)})


NAMES = [f"sub/{number}.png" for number in range(12)] + ["sub/missing.png"]


@pytest.mark.parametrize("name", ["metadata.parquet", "other.jsonl"])
def test_a_table_in_a_store_gives_the_dataset_of_its_copy(name, photos, upload, tmp_path, contents):
    columns = {"file_name": NAMES, "label": [("b", "a")[n % 2] for n in range(13)], "size": [*range(13)]}
    path = photos / name
    if name.endswith("parquet"):
        write_parquet(path, columns)
    else:
        write_jsonl(path, [dict(zip(columns, r, strict=True)) for r in zip(*columns.values(), strict=True)])
    url = upload(photos)
    whole = name.startswith("metadata")
    check_same(Table(photos if whole else path), Table(url if whole else f"{url}/{name}"), tmp_path, contents)


def test_the_images_of_a_local_table_may_be_in_a_store(photos, upload, tmp_path, contents):
    table = write_text(tmp_path / "t.csv", "image,n", *(f"{name[4:]},1" for name in NAMES[:-1]))
    url = upload(photos)
    check_same(Table(table, root=photos / "sub"), Table(table, root=f"{url}/sub"), tmp_path, contents)


def test_parquet_files_of_a_folder_and_a_pattern(upload, tmp_path, contents):
    folder = tmp_path / "tables"
    for split, count in (("train", 7), ("test", 3)):
        columns = {"x": range(count), "image": [encoded(n) for n in range(count)]}
        write_parquet(folder / f"{split}-00000-of-00001.parquet", columns)
    url = upload(folder)
    check_same(Table(folder), Table(url), tmp_path, contents)
    found = plan(Table(f"{url}/t*-of-00001.parquet"), tmp_path / "planned").listing
    assert (found.schema.names, [*found.splits]) == (("image", "x", "key"), ["train", "test"])
    with pytest.raises(InputError, match="no table"):
        plan(Table(f"{url}/x*.parquet"), tmp_path / "planned")


def test_workers_of_beam_read_the_copies_of_rows_in_the_bucket(photos, upload, bucket, tmp_path, monkeypatch):
    """Workers may be on other machines, which do not see the folder of the main one."""
    rows = {"file_name": NAMES[:-1], "inside": [encoded(n) for n in range(12)]}
    roles, folders = {"inside": "image"}, set()
    read = StagedReader.read

    def noted(self, *given):
        folders.add(self.folder)
        return read(self, *given)

    monkeypatch.setattr(StagedReader, "read", noted)
    url = f"{upload(photos)}/out"
    source = Table(write_parquet(photos / "t.parquet", rows), roles)
    manifest = build(source, url, shards=2, beam_args=["--runner=DirectRunner"])
    assert manifest.num_examples == 12
    assert [str(folder).startswith(f"{url}/.staged-") for folder in folders] == [True]
    local = build(source, tmp_path / "out", shards=2)
    assert local.build_id == manifest.build_id
    assert verify(url, deep=True)
    assert not [each["path"] for page in bucket.store().list() for each in page if ".staged-" in each["path"]]


def test_a_column_of_urls_of_objects(photos, upload, bucket, tmp_path, build_table):
    url = upload(photos)
    table = write_text(tmp_path / "t.csv", "url,n", *(f"{url}/{name},1" for name in NAMES))

    with pytest.raises(InputError, match=r"roles=\{'url': 'image'\}"):
        build_table(table)
    roles = {"url": "image"}
    manifest = build_table(table, roles=roles, root=url, build={"shards": 2, "options": OPTIONS})
    assert (manifest.totals.accepted, manifest.totals.rejected) == (12, 1)
    assert verify(tmp_path / "out", deep=True)
    bucket.store().put("data/sub/3.png", (photos / "sub" / "3.png").read_bytes()[:-1] + b"?")
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        build_table(table, roles=roles, root=url, build={"shards": 2, "options": OPTIONS})


@pytest.mark.parametrize("column", ["file_name", "url"])
def test_nothing_is_fetched_from_the_web(column, photos, tmp_path):
    address = "HTTP://user:5ecret@127.0.0.1:1/x.png?sig=5ecret"
    table = write_text(photos / "web.csv", f"{column},n", "sub/1.png,1", f"{address},2")
    with raises(InputError, "web address") as raised:
        Table(table, {column: "image"}).stage(tmp_path)
    assert "5ecret" not in str(raised.value)


@pytest.mark.parametrize("address", ["s3://elsewhere/x.png", "gs://elsewhere/x.png", "{url}x/1.png"])
def test_objects_outside_of_the_source_are_not_read(address, photos, upload, tmp_path):
    url = upload(photos)
    given = address.format(url=url)
    table = write_text(tmp_path / "t.csv", "file_name,n", f"{url}/sub/1.png,1", f"{given},2")
    with raises(InputError, "is outside", repr(given), str(url), code="outside-folder"):
        Table(table, root=url).stage(tmp_path)
    with raises(InputError, "is outside", str(tmp_path), code="outside-folder"):
        Table(table).stage(tmp_path)
