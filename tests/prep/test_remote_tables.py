"""Tables in object stores, and tables that name images in stores."""

import re
import sys

import pytest

from tests.errors import raises
from tests.prep.table_files import encoded, write_jsonl, write_parquet, write_text
from tests.prep.test_remote_sources import OPTIONS, check_same
from tests.storage import conftest
from tfshards.prep import Table, build, plan, verify
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import InputError, OptionsError

server, bucket, upload = conftest.server, conftest.bucket, conftest.upload


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


def test_only_the_wanted_objects_of_a_folder_are_asked_for(photos, upload, tmp_path, contents, monkeypatch):
    monkeypatch.setattr("tfshards.prep.sources.image_paths._LEAST_LISTED", 3)
    monkeypatch.setattr("tfshards.prep.sources.image_paths._LISTED_PER_IMAGE", 0)
    rows = [f"{name},{'ab'[number % 2]}" for number, name in enumerate(NAMES)]
    write_text(photos / "metadata.csv", "file_name,label", *rows)
    remote = Table(f"{upload(photos)}/metadata.csv")
    check_same(Table(photos / "metadata.csv"), remote, tmp_path, contents)


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


@pytest.mark.parametrize("path", ["../x.png", "s3://", "gs://bucket/a/../b.png"])
def test_a_path_that_cannot_be_read_is_an_error(path, bucket, tmp_path):
    table = write_text(tmp_path / "t.csv", "file_name,n", f"{path},1")
    with pytest.raises(InputError, match=re.escape(path)):
        Table(table, root=f"{bucket.url}/photos").stage(tmp_path)


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


def test_without_the_extra_urls_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    for source in (lambda: Table("s3://bucket/t.csv"), lambda: Table("t.csv", root="gs://bucket")):
        with raises(OptionsError, "object stores", code="extra-missing"):
            source()
