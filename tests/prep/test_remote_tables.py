"""Tables in object stores, and tables that name images in stores and on web servers."""

import io
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from tests.storage import conftest
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table, build, verify
from tfshards.prep.cli.main import main
from tfshards.prep.sources import web
from tfshards.prep.sources.tables import remote_images
from tfshards.schemas import BuildError, InputError, OptionsError

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
    with pytest.raises(InputError, match="no Parquet file matches the pattern"):
        Table(f"{url}/x*.parquet").column_names()


def test_a_column_of_urls_of_objects(photos, upload, bucket, tmp_path, quiet_build, log):
    url = upload(photos)
    table = tmp_path / "t.csv"
    table.write_text("url,n\n" + "".join(f"{url}/{name},{n}\n" for n, name in enumerate(NAMES)))
    build_ = lambda **roles: quiet_build(  # noqa: E731
        Table(table, columns=ColumnRoles(**roles)),
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
    with pytest.raises(InputError, match=r"1 input has changed, such as .*sub/3\.png"):
        quiet_build(Table(table, columns=ColumnRoles(images=("url",))), tmp_path / "out", shards=2)


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


@contextmanager
def serving(answers):
    """Serve answers by path: each is a list of ``(status, headers, body)``, of which the last is repeated."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append((time.monotonic(), self.path, dict(self.headers)))
            found = answers.get(self.path.partition("?")[0], [(404, {}, b"")])
            status, headers, body = found.pop(0) if len(found) > 1 else found[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = "Content-Length" in headers

        def log_message(self, *_):
            pass

    web_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web_server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{web_server.server_port}", seen
    finally:
        web_server.shutdown()
        web_server.server_close()
        thread.join()


def web_table(tmp_path, urls, **options):
    table = tmp_path / "web.csv"
    table.write_text("url,n\n" + "".join(f"{url},{n}\n" for n, url in enumerate(urls)))
    return Table(table, columns=ColumnRoles(images=("url",)), **options)


def test_images_of_a_web_server(tmp_path, quiet_build, monkeypatch):
    monkeypatch.setattr(web, "_FIRST_WAIT", 0.01)
    answers = {f"/{n}.png": [(200, {}, png(n))] for n in range(8)}
    answers["/1.png"].insert(0, (503, {"Retry-After": "0"}, b""))
    answers["/2.png"][:0] = [(429, {"Retry-After": "1"}, b""), (500, {}, b"")]
    answers["/3.png"] = [(302, {"Location": "/0.png"}, b"")]
    answers["/4.png"] = [(410, {}, b"")]
    answers["/5.png"].insert(0, (200, {"Content-Length": "9999"}, b"cut"))
    answers["/6.png"] = [(200, {"Content-Encoding": "gzip"}, b"bomb")]
    answers["/big.png"] = [(200, {}, png(1, 100))]
    with serving(answers) as (host, seen):
        names = [*(f"{n}.png" for n in range(8)), "none.png", "big.png", "html"]
        answers["/html"] = [(200, {}, b"<html>")]
        source = web_table(
            tmp_path, [f"{host}/{name}" for name in names], images=ImageOptions(max_bytes=20_000)
        )
        manifest = quiet_build(source, tmp_path / "out", shards=1, options=OPTIONS)
    assert manifest.totals.accepted == 6
    assert manifest.totals.reasons["rejected"] == {"missing": 2, "too large": 1, "unreadable": 2}
    rejects = next((tmp_path / "out").glob("rejected-*")).read_text()
    assert "the server answered 410 Gone" in rejects
    assert all(headers["User-Agent"] == "tfshards" for _, _, headers in seen)
    times = [at for at, path, _ in seen if path == "/2.png"]
    assert times[1] - times[0] >= 1
    assert verify(tmp_path / "out", deep=True)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((503, {}, b""), "the server answered 503 Service Unavailable, at 6 attempts; run the same command"),
        ((403, {}, b""), "the server answered 403 Forbidden; correct the table"),
        ((302, {"Location": "file:///etc/passwd"}, b""), "redirects to a URL that is not of a web server"),
        ((302, {"Location": "ftp://127.0.0.1/x"}, b""), "redirects to a URL that is not of a web server"),
        ((302, {"Location": "/0.png"}, b""), "the server redirects too often"),
    ],
)
def test_a_server_that_does_not_answer_ends_the_build_and_its_secrets_are_not_shown(
    answer, message, tmp_path, quiet_build, monkeypatch, contents
):
    monkeypatch.setattr(web, "_FIRST_WAIT", 0.001)
    answers = {"/0.png": [answer], "/1.png": [(200, {}, png(1))]}
    with serving(answers) as (host, seen):
        secret = host.replace("://", "://user:pass%77ord@")
        source = web_table(tmp_path, [f"{secret}/0.png?X-Amz-Signature=5ecret", f"{secret}/1.png?sig=5ecret"])
        with pytest.raises(BuildError, match=message) as raised:
            quiet_build(source, tmp_path / "out", shards=1)
        assert "5ecret" not in str(raised.value)
        assert "pass" not in str(raised.value)
        answers["/0.png"] = [(200, {}, png(0))]
        manifest = quiet_build(source, tmp_path / "out", shards=1)
    assert manifest.totals.accepted == 2
    assert seen[0][2]["Authorization"] == "Basic dXNlcjpwYXNzd29yZA=="
    files = contents(tmp_path / "out")
    assert not [name for name, data in files.items() if b"5ecret" in data or b"user:" in data]
    assert any(f"{host}/0.png".encode() in data for data in files.values())


def test_the_rate_of_requests_is_limited(tmp_path, quiet_build, capsys):
    with serving({f"/{n}.png": [(200, {}, png(n))] for n in range(10)}) as (host, seen):
        source = web_table(tmp_path, [f"{host}/{n}.png" for n in range(10)], requests_per_second=20)
        quiet_build(source, tmp_path / "out", shards=2)
        assert seen[-1][0] - seen[0][0] >= 0.4
        command = ["build", "table", str(source.path), str(tmp_path / "cli"), "--image", "url"]
        assert main([*command, "--requests-per-second", "100"]) == 0
    for rate in (0, -1, "fast", float("nan")):
        with pytest.raises(OptionsError, match=r"requests_per_second=.* must be a number above 0"):
            web_table(tmp_path, [], requests_per_second=rate)
    (tmp_path / "t.csv").write_text("n\n1\n")
    with pytest.raises(OptionsError, match=r"requests_per_second=1 has no effect, since no image"):
        quiet_build(Table(tmp_path / "t.csv", requests_per_second=1), tmp_path / "none")


def test_without_the_extra_urls_are_refused(tmp_path, monkeypatch, quiet_build):
    for package in ("obstore", "urllib3"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    for source in (lambda: Table("s3://bucket/t.csv"), lambda: Table("t.csv", root="gs://bucket")):
        with pytest.raises(OptionsError, match=r"install it: pip install 'tfshards\[remote\]'"):
            source()
    with pytest.raises(OptionsError, match=r"install it: pip install 'tfshards\[remote\]'"):
        quiet_build(web_table(tmp_path, ["http://127.0.0.1/x.png"]), tmp_path / "out")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (b"https://user:pass@host:8/a%20b.png?sig=x#y", b"https://host:8/a%20b.png"),
        (b"HTTP://host/a@b.png", b"HTTP://host/a@b.png"),
        (b"s3://bucket/a?b#c.png", b"s3://bucket/a?b#c.png"),
        (b"a?b/c@d.png", b"a?b/c@d.png"),
        (b"https://[bad/x.png?sig=x", b"https://[bad/x.png"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(given, shown):
    assert web.shown_url(given).lower() == shown.lower()


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
