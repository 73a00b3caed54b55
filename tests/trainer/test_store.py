"""One contract for both kinds of store: what holds for a bucket holds for a folder."""

import hashlib
import threading
import time
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from trainer import dialects, multipart
from trainer.dialects import OSS
from trainer.store import FileStore, Missing, S3Store, StoreError, Unavailable, open_store, sha256_file


@pytest.fixture(params=["folder", "s3", "s3-with-prefix", "oss", "oss-with-prefix"])
def store(request, tmp_path):
    if request.param == "folder":
        return FileStore(tmp_path / "store")
    if request.param.startswith("oss"):
        bucket = request.getfixturevalue("oss_bucket")
        return open_store(f"oss://{bucket}/{'runs/r-1' if 'prefix' in request.param else ''}")
    bucket = request.getfixturevalue("s3_bucket")
    return S3Store(bucket, "runs/r-1" if "prefix" in request.param else "")


def test_what_is_put_is_got_whole_and_the_last_counts(store):
    assert store.put("a/b", b"one") is True
    assert store.put("a/b", b"two") is True
    assert store.get("a/b") == b"two"
    store.put("a/empty", b"")
    assert store.get("a/empty") == b""


@pytest.mark.parametrize("key", ["absent", "a", "a/b/c", "a/"])
def test_an_absent_object_is_missing_by_every_call(store, key, tmp_path):
    """Also where a folder has that name, or a file stands where a folder would."""
    store.put("a/b", b"x")
    with pytest.raises(Missing, match="no such object"):
        store.get(key)
    with pytest.raises(Missing):
        store.download(key, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert store.exists(key) is False


def test_if_absent_writes_once(store):
    assert store.put("k", b"first", if_absent=True) is True
    assert store.put("k", b"second", if_absent=True) is False
    assert store.get("k") == b"first"
    store.delete("k")
    assert store.put("k", b"third", if_absent=True) is True


def test_of_many_who_write_if_absent_exactly_one_does(tmp_path):
    """Two records of one generation would be two leaders. On S3 it is S3's own promise (moto makes none)."""
    store, start, won = FileStore(tmp_path), threading.Barrier(8), []

    def write(number):
        start.wait()
        if store.put("generations/000001.json", str(number).encode(), if_absent=True):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("generations/000001.json") == str(won[0]).encode()


def test_a_listing_is_in_order_of_keys_and_by_any_prefix(store):
    for key in ("b", "a/2", "a/10", "a/1/x", "ab", "a-1"):
        store.put(key, key.encode())
    assert [entry.key for entry in store.list()] == ["a-1", "a/1/x", "a/10", "a/2", "ab", "b"]
    assert [entry.key for entry in store.list("a/")] == ["a/1/x", "a/10", "a/2"]
    assert [entry.key for entry in store.list("a/1")] == ["a/1/x", "a/10"]
    assert store.list("nothing/") == []
    assert [entry.size for entry in store.list("a/")] == [5, 4, 3]


def test_an_empty_store_lists_nothing(store):
    assert store.list() == []


def test_a_listing_longer_than_a_page_is_whole(store):
    """S3 lists a thousand at a time."""
    if isinstance(store, S3Store):
        listed = store.client.get_paginator("list_objects_v2").paginate
        store.client.get_paginator = lambda _: type(
            "P", (), {"paginate": lambda _, **a: listed(**a, PaginationConfig={"PageSize": 3})}
        )()
    for number in range(10):
        store.put(f"k{number}", b"")
    assert [entry.key for entry in store.list("k")] == [f"k{number}" for number in range(10)]


def test_an_etag_changes_whenever_the_content_does(store):
    """A heartbeat's ETag alone tells others that it advanced."""
    seen = set()
    for counter in range(20):
        store.put("beat", f"i {counter}".encode())
        seen.add(store.list("beat")[0].etag)
    assert len(seen) == 20


def test_deleting_is_idempotent(store):
    store.put("k", b"")
    store.delete("k")
    store.delete("k")
    assert not store.exists("k")


def test_files_go_there_and_back(store, tmp_path):
    source, target = tmp_path / "source", tmp_path / "deep/er/target"
    source.write_bytes(bytes(range(256)) * 12_000)
    store.upload(source, "files/x")
    assert store.exists("files/x")
    store.download("files/x", target)
    assert sha256_file(target) == sha256_file(source)
    assert [path.name for path in target.parent.iterdir()] == ["target"], "no temporary file is left"
    assert [entry.key for entry in store.list()] == ["files/x"]


def test_a_download_that_fails_leaves_what_was_there(store, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(Missing):
        store.download("absent", target)
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("key", ["", "a/b"])
def test_an_address_opens_the_same_place(store, key):
    store.put("a/b/c", b"x")
    opened = open_store(store.url(key))
    assert opened.get("a/b/c".removeprefix(key).lstrip("/")) == b"x"
    assert opened.url() == store.url(key)


def test_a_folders_name_may_hold_anything(tmp_path):
    store = FileStore(tmp_path / "a b%20ü#?")
    store.put("k", b"x")
    assert open_store(store.url()).get("k") == b"x"
    assert open_store(tmp_path / "a b%20ü#?").get("k") == b"x"


@pytest.mark.parametrize("url", ["http://x/y", "gs://b/p"])
def test_other_addresses_are_refused(url):
    with pytest.raises(ValueError, match="not a store: use s3://"):
        open_store(url)


def test_half_written_files_are_in_no_listing(tmp_path):
    store = FileStore(tmp_path)
    store.put("k", b"x")
    (tmp_path / ".part-123").write_bytes(b"half")
    assert [entry.key for entry in store.list()] == ["k"]


def test_a_store_that_does_not_answer_is_unavailable_within_seconds(s3_bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    store = S3Store("b")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="s3://b/k"):
        store.get("k")
    assert time.monotonic() - begun < 5
    for call in (lambda: store.put("k", b""), store.list, lambda: store.exists("k")):
        with pytest.raises(Unavailable):
            call()


def test_a_bucket_that_is_not_there_is_an_error_that_waiting_does_not_mend(s3_bucket):
    with pytest.raises(StoreError) as raised:
        S3Store(f"{s3_bucket}-other").list()
    assert not isinstance(raised.value, Unavailable | Missing)
    assert "NoSuchBucket" in str(raised.value)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", Unavailable),
        (500, "InternalError", Unavailable),
        (403, "AccessDenied", StoreError),
        (404, "NoSuchKey", Missing),
        (400, "ExpiredToken", StoreError),
    ],
)
def test_answers_are_sorted_by_whether_waiting_helps(status, code, kind):
    from botocore.exceptions import ClientError

    class Client:
        def get_object(self, **_):
            raise ClientError(
                {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject"
            )

    with pytest.raises(kind) as raised:
        S3Store("b", "p", Client()).get("k")
    assert type(raised.value) is kind
    assert "s3://b/p/k" in str(raised.value)


def test_a_store_knows_whether_it_holds_a_files_content(store, tmp_path):
    path, other = tmp_path / "f", tmp_path / "other"
    path.write_bytes(b"one")
    other.write_bytes(b"two")
    assert not store.holds("k", path)
    store.upload(path, "k")
    assert store.holds("k", path)
    assert not store.holds("k", other), "as long, but another"
    assert store.sha256("k") == sha256_file(path)
    with pytest.raises(Missing):
        store.sha256("absent")


def test_an_object_says_when_it_was_written(store):
    store.put("k", b"x")
    (entry,) = store.list()
    assert abs(entry.modified - time.time()) < 60


class Cut(BaseException):
    """Ends an upload as SIGKILL would."""


@pytest.fixture
def large(s3_bucket, tmp_path, monkeypatch):
    """A store, and a file that it sends in three parts, one after the other; each part sent is noted."""
    monkeypatch.setattr(multipart, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(multipart, "SENDERS", 1)
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (12 << 12))
    store, sent = S3Store(s3_bucket, "runs/r-1"), []
    original = store.client.upload_part

    def noted(**call):
        if len(sent) == noted.cut_after:
            raise Cut
        sent.append(call["PartNumber"])
        return original(**call)

    noted.cut_after = None
    monkeypatch.setattr(store.client, "upload_part", noted)
    return store, path, sent, noted


def test_a_large_file_goes_in_parts_and_is_known_again(large, tmp_path):
    store, path, sent, _ = large
    store.upload(path, "k")
    assert sent == [1, 2, 3]
    assert store.holds("k", path)
    assert store.sha256("k") == sha256_file(path)
    altered = tmp_path / "altered"
    altered.write_bytes(path.read_bytes()[:-1] + b"?")
    assert not store.holds("k", altered)
    assert store.client.list_multipart_uploads(Bucket=store.bucket).get("Uploads") is None


def cut_off(large, after):
    store, path, sent, noted = large
    noted.cut_after = after
    with pytest.raises(Cut):
        store.upload(path, "k")
    noted.cut_after = None
    sent.clear()
    assert not store.exists("k")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_upload_that_was_killed_goes_on_where_it_was(large, after):
    store, path, sent, _ = large
    cut_off(large, after)
    store.upload(path, "k")
    assert sent == [1, 2, 3][after:]
    assert store.sha256("k") == sha256_file(path)


def test_a_part_of_another_content_is_sent_again(large):
    store, path, sent, _ = large
    cut_off(large, 2)
    path.write_bytes(b"?" + path.read_bytes()[1:])
    store.upload(path, "k")
    assert sent == [1, 3]
    assert store.sha256("k") == sha256_file(path)


def test_s3s_own_checksum_decides_where_the_listing_has_it(large, monkeypatch):
    """Under KMS an ETag is no MD5 (S3 API reference, "Object"); moto lists no checksums."""
    store, path, sent, _ = large
    cut_off(large, 2)
    listed = multipart._pending

    def with_checksums(*arguments):
        upload_id, parts = listed(*arguments)
        content = path.read_bytes()
        right = b64encode(hashlib.sha256(content[: 5 << 20]).digest()).decode()
        parts[1] |= {"ChecksumSHA256": right}
        parts[2] |= {"ChecksumSHA256": "of something else"}
        return upload_id, parts

    monkeypatch.setattr(multipart, "_pending", with_checksums)
    store.upload(path, "k")
    assert sent == [2, 3]


@pytest.mark.parametrize("size", [3, 12 << 20])
def test_an_object_under_kms_is_known_by_s3s_checksum(tmp_path, monkeypatch, size):
    """Of one that was sent in parts, S3 tells the checksum of the parts' checksums, and how many they are."""
    monkeypatch.setattr(multipart, "PART_BYTES", 5 << 20)
    path = tmp_path / "f"
    path.write_bytes(b"x" * size)
    sums = [hashlib.sha256(b"x" * n).digest() for n in ([3] if size == 3 else [5 << 20, 5 << 20, 2 << 20])]
    of_all = sums[0] if size == 3 else hashlib.sha256(b"".join(sums)).digest()
    told = b64encode(of_all).decode() + ("" if size == 3 else "-3")
    head = {"ContentLength": size, "ETag": '"opaque"', "ChecksumSHA256": told}
    assert multipart.is_content(path, head)
    assert not multipart.is_content(path, head | {"ChecksumSHA256": "x" + told})
    assert not multipart.is_content(path, head | {"ContentLength": size + 1})
    assert not multipart.is_content(path, {"ContentLength": size, "ETag": '"opaque"'})


def test_who_may_not_list_uploads_begins_anew(large, monkeypatch):
    from botocore.exceptions import ClientError

    store, path, sent, _ = large
    cut_off(large, 2)

    def denied(*_):
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "ListMultipartUploads")

    monkeypatch.setattr(multipart, "_uploads", denied)
    store.upload(path, "k")
    assert sent == [1, 2, 3]
    store.abandon("")


def test_uploads_that_were_cut_off_are_forgotten_below_a_prefix_alone(large):
    store, _, _, _ = large
    cut_off(large, 1)
    S3Store(store.bucket, "runs/r-2").abandon("")
    assert len(store.client.list_multipart_uploads(Bucket=store.bucket)["Uploads"]) == 1
    store.abandon("k")
    assert store.client.list_multipart_uploads(Bucket=store.bucket).get("Uploads") is None


def test_a_file_of_any_size_fits_an_uploads_number_of_parts(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    cut = multipart.pieces(path)
    assert len(cut) <= multipart.MOST_PARTS
    assert sum(piece.size for piece in cut) == 1 << 40
    assert cut[-1].offset + cut[-1].size == 1 << 40


def test_hashing_reads_a_file_in_pieces(tmp_path):
    path = Path(tmp_path, "f")
    path.write_bytes(b"x" * (3 << 20))
    assert sha256_file(path) == __import__("hashlib").sha256(path.read_bytes()).hexdigest()


# --- What differs on OSS


def _headers(oss, method, part):
    return [headers for asked, path, headers in oss.asked if asked == method and part in path]


def test_oss_is_asked_for_nothing_that_it_lacks(oss, oss_bucket, tmp_path):
    """It has no checksums but Content-MD5, and answers others, as boto3 sends them unasked, with 501."""
    store = open_store(f"oss://{oss_bucket}/runs/r-1")
    path = tmp_path / "f"
    path.write_bytes(b"content")
    store.put("p", b"x")
    store.upload(path, "k")
    assert store.holds("k", path)
    store.download("k", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"content"
    (sent,) = _headers(oss, "PUT", "/runs/r-1/k")
    assert sent["content-md5"] == b64encode(hashlib.md5(b"content").digest()).decode()
    assert all(headers["authorization"].startswith("AWS4-HMAC-SHA256 ") for _, _, headers in oss.asked)
    assert all("/cn-hangzhou/s3/aws4_request" in headers["authorization"] for _, _, headers in oss.asked)


def test_what_arrives_altered_at_oss_is_refused(oss_bucket, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"content")
    wrong = b64encode(hashlib.md5(b"other").digest()).decode()
    store = open_store(f"oss://{oss_bucket}")
    store.dialect = replace(store.dialect, proof=lambda content: {"ContentMD5": wrong})
    with pytest.raises(StoreError, match="InvalidDigest"):
        store.upload(path, "k")


def test_a_bucket_with_versions_says_who_was_first_by_another_without(oss, oss_bucket):
    """OSS ignores that an object is to be created only if absent in a bucket with versions: both would win."""
    plain = replace(OSS, claims="")
    first, second = (S3Store(oss_bucket, dialect=plain) for _ in range(2))
    assert [first.put("generations/1", b"a", if_absent=True), second.put("generations/1", b"b", if_absent=True)] == [
        True,
        True,
    ], "the stand-in does as OSS: else this test shows nothing"
    first, second = (open_store(f"oss://{oss_bucket}") for _ in range(2))
    assert first.put("generations/2", b"a", if_absent=True) is True
    assert second.put("generations/2", b"b", if_absent=True) is False
    assert second.get("generations/2") == b"a"


def test_of_many_who_write_if_absent_to_oss_exactly_one_does(oss_bucket):
    start, won = threading.Barrier(6), []

    def write(number):
        store = open_store(f"oss://{oss_bucket}/runs/r-1")
        start.wait()
        if store.put("control/generations/000001.json", str(number).encode(), if_absent=True):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    store = open_store(f"oss://{oss_bucket}/runs/r-1")
    assert store.get("control/generations/000001.json") == str(won[0]).encode()


def test_who_was_first_and_died_before_writing_is_written_by_who_comes_next(oss_bucket):
    """Else no generation could be formed any more: its number would be taken, and its record missing."""
    claims = open_store(f"oss://{oss_bucket}-claims/runs/r-1")
    claims._claims = None
    assert claims.put("k", b"first", if_absent=True)
    store = open_store(f"oss://{oss_bucket}/runs/r-1")
    assert store.put("k", b"second", if_absent=True) is False
    assert store.get("k") == b"first"


def test_what_is_deleted_on_oss_does_not_come_back(oss_bucket):
    store = open_store(f"oss://{oss_bucket}")
    assert store.put("k", b"first", if_absent=True)
    store.delete("k")
    assert store.exists("k") is False
    assert store.put("k", b"second", if_absent=True) is True
    assert store.get("k") == b"second"


@pytest.mark.parametrize("lists", [True, False], ids=["uploads are listed", "uploads are not listed"])
def test_an_upload_to_oss_goes_on_where_its_uploads_are_listed_and_begins_anew_where_not(
    oss, oss_bucket, tmp_path, monkeypatch, lists
):
    """That S3's list of uploads works is not among what OSS promises."""
    monkeypatch.setattr(multipart, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(multipart, "SENDERS", 1)
    oss.lists_uploads = lists
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (12 << 12))
    store = open_store(f"oss://{oss_bucket}")
    original, sent = store.client.upload_part, []

    def part(**call):
        if len(sent) == 2:
            raise Cut
        sent.append(call["PartNumber"])
        return original(**call)

    monkeypatch.setattr(store.client, "upload_part", part)
    with pytest.raises(Cut):
        store.upload(path, "k")
    monkeypatch.setattr(store.client, "upload_part", original)
    before = len(_headers(oss, "PUT", "partNumber"))
    store.upload(path, "k")
    assert len(_headers(oss, "PUT", "partNumber")) - before == (1 if lists else 3)
    assert store.holds("k", path)
    assert store.sha256("k") == sha256_file(path)
    store.abandon("")


def test_oss_is_at_its_own_address_and_within_the_network_on_nodes(monkeypatch):
    """Wherever boto3 is led for S3: that is not to get a request with a role's token."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv(dialects.ENDPOINT, raising=False)
    assert dialects.endpoint("cn-hangzhou") == "https://s3.oss-cn-hangzhou.aliyuncs.com"
    monkeypatch.setenv(dialects.INTERNAL, "1")
    assert dialects.endpoint("ap-southeast-1") == "https://s3.oss-ap-southeast-1-internal.aliyuncs.com"
    monkeypatch.setenv("ALIBABA_CLOUD_REGION_ID", "cn-hangzhou")
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"):
        monkeypatch.setenv(name, "test")
    client = open_store("oss://b-1").client
    url = client.generate_presigned_url("get_object", {"Bucket": "b-1", "Key": "k"})
    assert url.startswith("https://b-1.s3.oss-cn-hangzhou-internal.aliyuncs.com/k?"), "the bucket in the host's name"


def test_what_is_sent_to_oss_is_signed_with_its_content(monkeypatch):
    """boto3 signs a part of an upload without its content where the connection has TLS."""
    monkeypatch.delenv(dialects.ENDPOINT, raising=False)
    monkeypatch.setenv("ALIBABA_CLOUD_REGION_ID", "cn-hangzhou")
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"):
        monkeypatch.setenv(name, "test")
    client, sent = open_store("oss://b-1").client, []

    def answer(request, **_):
        sent.append(request)
        answered = AWSResponse(request.url, 200, {"ETag": '"e"'}, None)
        answered._content = b""
        return answered

    client.meta.events.register("before-send.s3", answer)
    told = {"Bucket": "b-1", "Key": "k", "Body": b"one", **dialects.OSS.proof(b"one")}
    client.put_object(**told)
    client.upload_part(**told, PartNumber=1, UploadId="u")
    digest = hashlib.sha256(b"one").hexdigest().encode()
    assert [request.headers["x-amz-content-sha256"] for request in sent] == [digest] * 2
    assert all(request.url.startswith("https://b-1.s3.oss-cn-hangzhou.") for request in sent)


def _meanwhile(store, monkeypatch, *changes):
    """Have each of the changes happen just before a write of an object of the store's: the writer is slow."""
    put, left = store.client.put_object, list(changes)

    def slow(**call):
        if call["Bucket"] == store.bucket and left:
            left.pop(0)()
        return put(**call)

    monkeypatch.setattr(store.client, "put_object", slow)


@pytest.mark.parametrize("second", [False, True], ids=["of the first", "of the second"])
def test_a_late_write_does_not_bring_back_what_was_deleted_on_oss(oss_bucket, monkeypatch, second):
    """`retry` removes an outcome and its claim; a write that was under way would end the run again."""
    store, other = open_store(f"oss://{oss_bucket}"), open_store(f"oss://{oss_bucket}")
    if second:
        store._claims.put("k", b"first")
    _meanwhile(store, monkeypatch, lambda: other.delete("k"))
    assert store.put("k", b"mine", if_absent=True) is not second
    assert not other.exists("k")
    assert other.put("k", b"anew", if_absent=True)


def test_a_writer_that_may_delete_nothing_leaves_a_late_write_as_on_s3(oss_bucket, monkeypatch):
    """As nodes, that delete no outcome."""
    store, other = open_store(f"oss://{oss_bucket}"), open_store(f"oss://{oss_bucket}")
    _meanwhile(store, monkeypatch, lambda: other.delete("k"))
    refused = ClientError({"Error": {"Code": "AccessDenied"}}, "DeleteObject")
    monkeypatch.setattr(store.client, "delete_object", lambda **_: (_ for _ in ()).throw(refused))
    assert store.put("k", b"mine", if_absent=True)
    assert other.get("k") == b"mine"


def test_a_late_write_gives_way_to_who_came_first_since(oss_bucket, monkeypatch):
    store, other = open_store(f"oss://{oss_bucket}"), open_store(f"oss://{oss_bucket}")

    def anew():
        other.delete("k")
        assert other.put("k", b"anew", if_absent=True)

    _meanwhile(store, monkeypatch, anew)
    store.put("k", b"late", if_absent=True)
    assert other.get("k") == b"anew"
    assert other.put("k", b"third", if_absent=True) is False


def test_claims_that_never_stand_keep_no_writer_for_ever(oss_bucket, monkeypatch):
    store, other = open_store(f"oss://{oss_bucket}"), open_store(f"oss://{oss_bucket}")
    changes = [lambda number=number: other._claims.put("k", str(number).encode()) for number in range(100)]
    _meanwhile(store, monkeypatch, *changes)
    before = len(changes)
    assert store.put("k", b"mine", if_absent=True)
    assert other.get("k") in [str(number).encode() for number in range(before)]


def test_an_oss_address_without_a_region_is_refused(monkeypatch):
    monkeypatch.delenv("ALIBABA_CLOUD_REGION_ID", raising=False)
    with pytest.raises(ValueError, match="set ALIBABA_CLOUD_REGION_ID"):
        open_store("oss://b")
