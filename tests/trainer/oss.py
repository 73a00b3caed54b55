"""OSS as its documents describe it, before moto's S3: what it lacks and refuses, for tests on loopback."""

import hashlib
import http.client
import threading
from base64 import b64decode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

REFUSED = ("x-amz-checksum", "x-amz-sdk-checksum", "x-amz-trailer", "x-amz-checksum-mode", "if-none-match")
"""Headers that OSS answers with 501, or doesn't know."""


class Oss:
    """Passes requests on, except for what OSS does otherwise. Buckets named in `versioned` have versions."""

    def __init__(self, s3_endpoint: str, serve: Callable[[type[BaseHTTPRequestHandler]], str]) -> None:
        self.versioned: set[str] = set()
        self.lists_uploads = False
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self._lock = threading.Lock()
        oss, target = self, urlsplit(s3_endpoint)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def refuse(self, status, code):
                body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def handle_it(self):  # noqa: RET503
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                oss.asked.append((self.command, self.path, headers))
                if any(name.startswith(REFUSED) for name in headers) or "aws-chunked" in str(headers):
                    return self.refuse(501, "NotImplemented")
                if (digest := headers.get("content-md5")) and b64decode(digest) != hashlib.md5(body).digest():
                    return self.refuse(400, "InvalidDigest")
                parts = urlsplit(self.path)
                if parts.query.startswith("uploads") and self.command == "GET" and not oss.lists_uploads:
                    return self.refuse(501, "NotImplemented")
                bucket = parts.path.strip("/").partition("/")[0]
                forbid = headers.pop("x-oss-forbid-overwrite", "") == "true" and bucket not in oss.versioned
                with oss._lock:
                    if forbid and self.pass_on("HEAD", headers, b"").status == 200:
                        return self.refuse(409, "FileAlreadyExists")
                    answer = self.pass_on(self.command, headers, body)
                content = answer.content
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if not name.lower().startswith(("x-amz-checksum", "transfer-encoding", "content-length", "date")):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def pass_on(self, method, headers, body):
                connection = http.client.HTTPConnection(target.hostname, target.port, timeout=10)
                sent = {name: value for name, value in headers.items() if body or name != "content-length"}
                connection.request(method, self.path, body or None, sent)
                answer = connection.getresponse()
                answer.content = answer.read()
                connection.close()
                return answer

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_it

        self.url = serve(Handler)
