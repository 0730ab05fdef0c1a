"""``RemotePath`` does in an object store what ``pathlib.Path`` does on a disk."""

import io
from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import ChangedError, RemotePath, any_path
from tfshards.schemas.storage.stored import Limit

from .conftest import each_store

ODD = ["a b", "100%25", "#1", "x+y", "é", "Ünï", "a&b=c", "semi;colon", "(1)", "~tilde", "quote'", "dots..x"]


@pytest.fixture
def folder(bucket) -> RemotePath:
    return any_path(f"{bucket.url}/data")


@pytest.fixture
def local(tmp_path):
    return any_path(tmp_path / "data")


def fill(root) -> None:
    for name in ("a.txt", "b.bin", "inside/c.txt", "inside/deep/d.txt", ".hidden"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode() * 3)


URLS = {
    "and local paths": ["hdfs://host/x", "file:///x", "https://user:pw@host/x"],
    "write s3://BUCKET": ["s3:bucket/x"],
    "BUCKET/FOLDER, without": [
        *("s3://", "s3:///bucket/x", "s3:/bucket/x", "s3://user:pw@bucket/x", "s3://user:p/pw@bucket/x"),
        *("s3://user:pw", "gs://user@bucket/x", "s3://bucket:80/x", "s3://bucket/a//b", "s3://bucket//a"),
        *("s3://bucket/a//", "s3://bucket/a/../b"),
    ],
}


def test_other_urls_are_refused_without_their_secrets():
    for code, urls in URLS.items():
        for url in urls:
            with raises(OptionsError, code) as caught:
                any_path(url)
            assert "pw" not in str(caught.value)
            assert "user" not in str(caught.value)
    # pathlib shortens a URL
    assert any_path(Path("s3://bucket/data/")) == any_path("s3://bucket/data")


@each_store
def test_listings_are_those_of_a_local_folder(folder, local):
    fill(folder)
    fill(local)

    def listed(root, paths) -> list[str]:
        return sorted(str(path).removeprefix(f"{root}/") for path in paths)

    for look in (
        lambda root: root.iterdir(),
        lambda root: (root / "inside").iterdir(),
        lambda root: (path for path in root.iterdir() if path.is_dir()),
        lambda root: (path for path in root.iterdir() if path.is_file()),
    ):
        assert listed(folder, look(folder)) == listed(local, look(local))
    assert folder.sizes_below() == local.sizes_below()


@each_store
def test_odd_names_come_back_as_they_were(folder):
    for name in ODD:
        (folder / name).write_bytes(name.encode())
    assert sorted(path.name for path in folder.iterdir()) == sorted(ODD)
    assert all(path.read_bytes().decode() == path.name for path in folder.iterdir())


def test_ranges_and_files_are_read(folder, local, tmp_path):
    data = bytes(range(256)) * 10_000
    local.mkdir()
    for root in (folder, local):
        path = root / "big"
        path.write_bytes(data)
        assert path.stat().st_size == len(data)
        assert path.read_range(1_000_000, 1_000_010) == data[1_000_000:1_000_010]
        assert path.read_range(5, 5) == b""
        assert path.read_whole(Limit("a list", len(data))) == data
        with pytest.raises(OSError, match="has 2560000 bytes; a list has at most 10"):
            path.read_whole(Limit("a list", 10))
        with path.open_regular() as file:
            assert file.read(100) == data[:100]
            assert file.seek(-50, io.SEEK_END) == len(data) - 50
            assert file.read() == data[-50:]
            assert file.read() == b""
        assert path.read_once(lambda _: None) == (len(data), path.digest(), data[-8:].hex())


def test_a_replaced_file_is_noticed(folder, local):
    local.mkdir()
    for root in (folder, local):
        path = root / "x"
        path.write_bytes(b"second")
        with pytest.raises(ChangedError, match="ends at byte 6, before byte 9"):
            path.read_range(3, 9)
    with pytest.raises(ChangedError, match="is shorter than it was"):
        (folder / "x").read_range(100, 110)
    before = (folder / "x").stat()
    (folder / "x").write_bytes(b"third!")
    with pytest.raises(ChangedError, match="was replaced in the meantime"):
        (folder / "x").read_range(0, 3, before.e_tag)


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(folder):
    path = folder / "x"
    path.write_bytes(b"1" * (3 << 20))
    with path.open_regular() as file:
        assert file.read(10) == b"1" * 10
        path.write_bytes(b"2" * (3 << 20))
        with pytest.raises(ChangedError, match="was replaced"):
            file.read()


@each_store
def test_an_object_is_replaced_only_if_it_is_the_one_that_was_seen(folder):
    path = folder / "x"
    path.replace_if(b"first", None, folder)
    # a request that is repeated because its answer was lost
    path.replace_if(b"first", None, folder)
    seen = path.stat()
    path.replace_if(b"second", seen, folder)
    path.replace_if(b"second", seen, folder)
    with pytest.raises(ChangedError, match="was replaced in the meantime"):
        path.replace_if(b"third", seen, folder)
    assert path.read_bytes() == b"second"
    path.unlink()
    with pytest.raises((ChangedError, FileNotFoundError)):
        path.replace_if(b"third", seen, folder)
    assert not path.exists()


@each_store
def test_a_long_file_is_written_in_parts_and_appears_when_it_is_finished(folder, local):
    local.mkdir()
    data = [bytes([number]) * 1_000_000 for number in range(20)]
    for root in (folder, local):
        sink = (root / "long").new_file()
        for buffer in data:
            sink.write(buffer)
        assert not (root / "long").exists()
        sink.finish()
        assert (root / "long").read_bytes() == b"".join(data)
        sink = (root / "abandoned").new_file()
        sink.write(data[0])
        sink.abandon()
        assert not (root / "abandoned").exists()
        (root / "blocks").write(iter(data))
        assert (root / "blocks").read_bytes() == b"".join(data)
        with pytest.raises(ZeroDivisionError):
            (root / "broken").write(data[1 // number] for number in (1, 0))
        assert not (root / "broken").exists()


def test_errors_are_those_of_files(folder, bucket, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"there is no such object: 's3://.*/data/x'"):
        (folder / "x").read_bytes()
    with pytest.raises(FileNotFoundError, match="there is no such bucket"):
        any_path("s3://no-such-bucket/x").read_bytes()
    with raises(InputError, "there are no credentials", code="no-credentials"):
        _without_credentials(monkeypatch).read_bytes()


def _without_credentials(monkeypatch) -> RemotePath:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return any_path("s3://another-bucket/x")


def test_the_files_of_aws_configure_are_used(folder, bucket, monkeypatch, tmp_path):
    (folder / "x").write_bytes(b"1")
    _without_credentials(monkeypatch)
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (tmp_path / "config").write_text("[profile work]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert (folder / "x").read_bytes() == b"1"
    monkeypatch.setenv("AWS_PROFILE", "unknown")
    with pytest.raises(InputError, match=r"the configuration of AWS cannot be used: .*unknown"):
        (folder / "x").read_bytes()
