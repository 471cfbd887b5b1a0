#!/usr/bin/env python3
"""Opens the sealed frames of sealed-frames.json as docs/WIRE.md says, section 7, without any code of datapump.

python3 open_frames.py FILE; needs Debian's python3-cryptography.
"""

import json
import struct
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

HEADER_BYTES, TAG_BYTES, IV_BYTES = 64, 16, 12
SUITES = {
    "AES-128-GCM": (16, AESGCM),
    "ChaCha20-Poly1305": (32, ChaCha20Poly1305),
    "AES-256-GCM": (32, AESGCM),
}


def expand(secret, name, length):
    return HKDFExpand(SHA256(), length, name).derive(secret)


class Opener:
    def __init__(self, suite, secret, key_bytes_max):
        self.suite, self.key_bytes_max = suite, key_bytes_max
        self.use(secret)

    def use(self, secret):
        key_bytes, cipher = SUITES[self.suite]
        self.secret, self.calls, self.bytes = secret, 0, 0
        self.key = expand(secret, b"datapump frame key", key_bytes)
        self.iv = expand(secret, b"datapump frame iv", IV_BYTES)
        self.cipher = cipher(self.key)

    def open(self, sealed):
        if self.bytes >= self.key_bytes_max:
            self.use(expand(self.secret, b"datapump frame next", 32))
        count = bytes(4) + struct.pack(">Q", self.calls)
        nonce = bytes(a ^ b for a, b in zip(self.iv, count))
        plain = self.cipher.decrypt(nonce, sealed, None)
        self.calls += 1
        self.bytes += len(plain)
        return plain

    def frame(self, wire):
        header = self.open(wire[: HEADER_BYTES + TAG_BYTES])
        (body_bytes,) = struct.unpack_from("<I", header, 20)
        rest = wire[HEADER_BYTES + TAG_BYTES :]
        if body_bytes == 0:
            assert rest == b"", "a frame without body is longer than its header"
            return header, b""
        assert len(rest) == body_bytes + TAG_BYTES, "the header says another length"
        return header, self.open(rest)


def main():
    opened = 0
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        opener = Opener(case["suite"], bytes.fromhex(case["secret"]), case["key_bytes_max"])
        assert opener.key == bytes.fromhex(case["first_key"]), "key"
        assert opener.iv == bytes.fromhex(case["first_iv"]), "iv"
        for frame in case["frames"]:
            header, body = opener.frame(bytes.fromhex(frame["wire"]))
            assert header == bytes.fromhex(frame["header"]), "header"
            assert body == bytes.fromhex(frame["body"]), "body"
            opened += 1
        assert opener.secret != bytes.fromhex(case["secret"]), "no key was changed"
    print(f"{len(cases)} suites, {opened} frames opened")


main()
