"""Tables in object stores, and tables that name images in stores."""

import io
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.errors import raises
from tests.storage import conftest
from tfshards.prep import ColumnRoles, Options, Table, build, verify
from tfshards.prep.cli.main import main
from tfshards.prep.sources.tables import images as remote_images
from tfshards.schemas import InputError, OptionsError

server, bucket = conftest.server, conftest.bucket
OPTIONS = Options(max_rejected=0.9)


def png(number, side=6):
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def photos(tmp_path):
    """A folder of images."""
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for number in range(12):
        (folder / "sub" / f"{number}.png").write_bytes(png(number))
    return folder


@pytest.fixture
def upload(bucket):
    """Copy a folder into the bucket, and return its URL."""

    def run(folder, prefix="data"):
        store = bucket.store()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                store.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{bucket.url}/{prefix}"

    return run


def check_same(local, remote, tmp_path, contents):
    lines = []
    for source, name in ((local, "local"), (remote, "remote")):
        build(source, tmp_path / name / "out", shards=2, seed=1, options=OPTIONS, log=lines.append)
    one, two = contents(tmp_path / "local"), contents(tmp_path / "remote")
    assert one.keys() == two.keys()
    assert {name for name in one if one[name] != two[name] and "inputs-" not in name} == set()
    return lines


NAMES = [f"sub/{number}.png" for number in range(12)] + ["sub/missing.png"]


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "metadata.parquet", "other.tsv"])
def test_a_table_in_a_store_gives_the_dataset_of_its_copy(name, photos, upload, tmp_path, contents):
    rows = {"file_name": NAMES, "label": [("b", "a")[n % 2] for n in range(13)], "size": [*range(13)]}
    path = photos / name
    if name.endswith("parquet"):
        pyarrow.parquet.write_table(pa.table(rows), path)
    elif name.endswith("jsonl"):
        lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, lines)))
    else:
        mark = "\t" if name.endswith("tsv") else ","
        path.write_text(
            "\n".join(mark.join(map(str, row)) for row in [rows, *zip(*rows.values(), strict=True)])
        )
    url = upload(photos)
    whole = name.startswith("metadata")
    check_same(Table(photos if whole else path), Table(url if whole else f"{url}/{name}"), tmp_path, contents)


def test_of_a_folder_of_many_other_objects_only_the_wanted_ones_are_asked_for(
    photos, upload, tmp_path, contents, monkeypatch
):
    monkeypatch.setattr(remote_images, "_LEAST_LISTED", 3)
    monkeypatch.setattr(remote_images, "_LISTED_PER_IMAGE", 0)
    monkeypatch.setattr(remote_images, "_WAITING", 2)
    rows = ["file_name,label", *(f"{name},{'ab'[number % 2]}" for number, name in enumerate(NAMES))]
    (photos / "metadata.csv").write_text("\n".join(rows))
    remote = Table(f"{upload(photos)}/metadata.csv")
    check_same(Table(photos / "metadata.csv"), remote, tmp_path, contents)


def test_the_images_of_a_local_table_may_be_in_a_store(photos, upload, tmp_path, contents):
    table = tmp_path / "t.csv"
    table.write_text("photo,n\n" + "".join(f"{name[4:]},1\n" for name in NAMES[:-1]))
    url = upload(photos)
    lines = check_same(Table(table, root=photos / "sub"), Table(table, root=f"{url}/sub"), tmp_path, contents)
    assert sum("column 'photo' holds images" in line for line in lines) == 2


def test_parquet_files_of_a_folder_and_a_pattern(upload, tmp_path, contents):
    folder = tmp_path / "tables"
    folder.mkdir()
    for split, count in (("train", 7), ("test", 3)):
        table = pa.table({"x": np.arange(count), "image": [png(n) for n in range(count)]})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    url = upload(folder)
    check_same(Table(folder), Table(url), tmp_path, contents)
    assert Table(f"{url}/t*-of-00001.parquet").column_names() == ["x", "image", "split"]
    with raises(InputError, "table-no-match"):
        Table(f"{url}/x*.parquet").column_names()


def test_a_column_of_urls_of_objects(photos, upload, bucket, tmp_path, quiet_build, log):
    url = upload(photos)
    table = tmp_path / "t.csv"
    table.write_text("url,n\n" + "".join(f"{url}/{name},{n}\n" for n, name in enumerate(NAMES)))
    build_ = lambda **roles: quiet_build(  # noqa: E731
        Table(table, columns=ColumnRoles(**roles), **({"root": url} if roles else {})),
        tmp_path / "out",
        shards=2,
        options=OPTIONS,
        overwrite=True,
    )
    build_()
    assert any("'url' holds URLs of images, which are not fetched" in line for line in log)
    manifest = build_(images=("url",))
    assert (manifest.totals.accepted, manifest.totals.rejected) == (12, 1)
    assert verify(tmp_path / "out", deep=True)
    bucket.store().put("data/sub/3.png", png(77))
    with raises(InputError, "dataset-of-other-inputs"):
        quiet_build(Table(table, columns=ColumnRoles(images=("url",)), root=url), tmp_path / "out", shards=2)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../x.png", r"'\.\./x\.png' is outside s3://"),
        ("/x.png", "'/x.png' is outside s3://"),
        ("s3://", "names no bucket"),
        ("gs://bucket/a/../b.png", "contains . or .."),
        ("none.png", "none of the image files exists, such as 'none.png' in s3://"),
    ],
)
def test_a_path_that_cannot_be_read_is_an_error(path, message, bucket, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(f"file_name,n\n{path},1\n")
    (tmp_path / "staged").mkdir()
    with pytest.raises(InputError, match=message):
        Table(table, root=f"{bucket.url}/photos").stage(tmp_path / "staged")


SECRET = "user:pass%77ord@"


@pytest.mark.parametrize(
    "address", [f"HTTP://{SECRET}127.0.0.1:1/x.png?sig=5ecret", "https://127.0.0.1/x.png"]
)
@pytest.mark.parametrize("column", ["file_name", "url"])
def test_nothing_is_fetched_from_the_web(address, column, photos, tmp_path, capsys):
    table = photos / "web.csv"
    table.write_text(f"{column},n\nsub/1.png,1\n{address},2\n")
    command = ["build", "table", str(table), str(tmp_path / "out"), "--shards", "1"]
    assert main([*command, *(["--image", "url"] if column == "url" else [])]) == 1
    shown = address.partition("?")[0].replace(SECRET, "")
    error = capsys.readouterr().err
    assert f"{shown!r} is a web address, from which nothing is fetched; download the images" in error
    assert "5ecret" not in error
    assert "pass" not in error


@pytest.mark.parametrize("address", ["s3://elsewhere/x.png", "gs://elsewhere/x.png", "{url}x/1.png"])
def test_objects_outside_of_the_source_are_not_read(address, photos, upload, tmp_path, quiet_build):
    url = upload(photos)
    address = address.format(url=url)
    table = tmp_path / "t.csv"
    table.write_text(f"file_name,n\n{url}/sub/1.png,1\n{address},2\n")
    with pytest.raises(InputError, match=f"'{address}' is outside {url}; give the folder that holds all"):
        quiet_build(Table(table, root=url), tmp_path / "out")
    with pytest.raises(InputError, match=f"' is outside {tmp_path}; give the folder"):
        quiet_build(Table(table), tmp_path / "out")


def test_without_the_extra_urls_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    for source in (lambda: Table("s3://bucket/t.csv"), lambda: Table("t.csv", root="gs://bucket")):
        with raises(OptionsError, "store-extra-missing"):
            source()


@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_annotations_are_read_from_disks_only(form):
    with pytest.raises(
        OptionsError, match=rf"form='{form}' reads annotations and images of local disks only"
    ):
        Table("s3://bucket/annotations.json", form=form)


def test_values_without_a_suffix_are_images_if_they_start_like_one(photos, upload):
    (photos / "plain").write_bytes(png(1))
    (photos / "text").write_bytes(b"no image")
    root = upload(photos).encode()
    values = [b"plain", b"text", b"missing", b"sub/1.png", b"", b"../plain"]
    assert remote_images.are_images(root, values) == [True, False, False, True, False, False]
