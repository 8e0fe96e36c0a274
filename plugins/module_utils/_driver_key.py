# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Fingerprints of an OpenPGP key, without gpg: a bare host has none. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError

_ARMOUR = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
_PUBLIC_KEY = 6  # RFC 4880, 4.3: tag of a primary key


def _dearmoured(text):
    blocks = _ARMOUR.findall(text)
    if not blocks:
        raise DriverError("Expected an armoured OpenPGP key, found none: correct nvidia_driver_repository_key.")
    data = b""
    for block in blocks:
        body = block.replace("\r", "").strip("\n")
        # Headers end at the first empty line; the checksum begins with "=".
        if re.match(r"^[A-Za-z]+: ", body):
            body = body.partition("\n\n")[2]
        lines = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith("=")]
        try:
            data += base64.b64decode("".join(lines), validate=True)
        except (binascii.Error, ValueError) as error:
            raise DriverError(
                f"Expected an armoured OpenPGP key, found one that is damaged ({error}): fetch it again."
            ) from error
    return data


def _packets(data):
    """Yield (tag, body) of each packet (RFC 4880, 4.2). Raises DriverError at the first that is cut off."""
    at = 0
    while at < len(data):
        head = data[at]
        at += 1
        if head & 0x40:  # new format
            tag, first = head & 0x3F, data[at]
            if first < 192:
                length, at = first, at + 1
            elif first < 224:
                length, at = ((first - 192) << 8) + data[at + 1] + 192, at + 2
            else:
                length, at = int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
        else:
            tag, size = (head & 0x3C) >> 2, 1 << (head & 3)
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise DriverError("Expected a whole OpenPGP key, found one that is cut off: fetch it again.")
        yield tag, data[at : at + length]
        at += length


def _fingerprint(body):
    if body[0] != 4:
        return f"(a key of version {body[0]})"
    # RFC 4880, 12.2. It names the key and protects nothing: what it signs is checked by apt or rpm.
    digest = hashlib.new("sha1", b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
    return digest.hexdigest().upper()


def fingerprints(text):
    """Return the fingerprints of the primary keys (version 4) in an armoured text. Raises DriverError."""
    try:
        found = [_fingerprint(body) for tag, body in _packets(_dearmoured(text)) if tag == _PUBLIC_KEY]
    except IndexError as error:
        raise DriverError("Expected a whole OpenPGP key, found one that is cut off: fetch it again.") from error
    return found


def check_key(text, wanted):
    """Return the fingerprint when the text holds exactly the wanted key. Raises DriverError (one sentence)."""
    wanted = wanted.replace(" ", "").upper()
    found = fingerprints(text)
    if found != [wanted]:
        raise DriverError(
            f"Expected the key {wanted} of the repository, found {', '.join(found) or 'no key'}: when the owner changed"
            " the key, compare the new one with what they publish and set nvidia_driver_repository_fingerprint."
        )
    return wanted
