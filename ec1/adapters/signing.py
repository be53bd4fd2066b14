"""Signatures of versions: who may bring an adapter into use, told by bytes and not by where they lie.

What is signed is a version's manifest, which holds the verdict and the SHA-256 of every file beside it: weights and
evaluation are signed together, and changing either, or both with the manifest, breaks it. The key is made on first use
and never leaves the home (`adapters.pem`, for its owner alone). Trusted is every public key in that folder (`*.pub`): a
machine that only serves gets the publisher's. A version without a signature is refused; `ec1 adapters sign` is how a
person vouches for one that was published before there were signatures.

The format is OpenSSF Model Signing's, so an auditor needs nothing of ours: `model_signing verify key manifest.json
--signature model.sig --public_key adapters.pub`. https://github.com/sigstore/model-transparency

Decisions about versions are signed by the same keys, plainly: `openssl dgst -sha256 -verify adapters.pub` checks one.

Belongs here: keys, signing, checking. Does not: where signatures are kept (`registry.py`, `book.py`).
"""

import base64
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from ec1.adapters.manifest import MANIFEST
from ec1.errors import PermanentError
from ec1.files import atomic_file, write_atomic

SIGNATURE = "model.sig"
PRIVATE, PUBLIC = "adapters.pem", "adapters.pub"
OWN_PUBLIC = "this-home.pub"
"""Of a home that has another's under the usual name."""


class SigningKeys:
    """The keys of a home, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._good: set[str] = set()
        """Digests of what was found good: an engine or a gateway asks for the same versions again and again."""

    def sign(self, manifest: bytes) -> bytes:
        """The signature of a manifest by this home's own key, which is made if there is none."""
        private = self._own()
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / MANIFEST
            path.write_bytes(manifest)
            signature = path.with_name(SIGNATURE)
            _library("signing").Config().use_elliptic_key_signer(private_key=private).sign(path, signature)
            return signature.read_bytes()

    def problem(self, manifest: bytes, signature: bytes | None) -> str | None:
        """Why a manifest is not trusted; None if one of the trusted keys has signed exactly these bytes."""
        if signature is None:
            return "is not signed; check where it comes from, then `ec1 adapters sign`"
        trusted = sorted(self.folder.glob("*.pub"))
        if not trusted:
            return f"cannot be checked: copy the publisher's {PUBLIC} into {self.folder}"
        keys = [key.read_bytes() for key in trusted]
        asked = hashlib.sha256(b"\0".join([manifest, signature, *keys])).hexdigest()
        if asked in self._good:
            return None
        verifying = _library("verifying")
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / MANIFEST
            path.write_bytes(manifest)
            path.with_name(SIGNATURE).write_bytes(signature)
            for key in trusted:
                try:
                    config = verifying.Config().use_elliptic_key_verifier(public_key=key)
                    config.verify(path, path.with_name(SIGNATURE))
                    self._good.add(asked)
                    return None
                except Exception:  # noqa: BLE001
                    # Bytes from outside: whatever the parsers make of them, they are not this key's signature.
                    continue
        return f"was changed after it was signed, or signed by a key that {self.folder} does not hold"

    def seal(self, data: bytes) -> str:
        """This home's signature of a few bytes (Base64 of ECDSA over SHA-256)."""
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key: Any = serialization.load_pem_private_key(self._own().read_bytes(), None)
        return base64.b64encode(key.sign(data, ec.ECDSA(hashes.SHA256()))).decode()

    def seal_problem(self, data: bytes, signature: str) -> str | None:
        """Why bytes are not trusted; None if one of the trusted keys has sealed exactly these. Raises ValueError or
        TypeError if the signature has no such form."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        signed = base64.b64decode(signature, validate=True)
        trusted = sorted(self.folder.glob("*.pub"))
        if not trusted:
            return f"cannot be checked: copy {PUBLIC} of whoever decided into {self.folder}"
        for path in trusted:
            key: Any = serialization.load_pem_public_key(path.read_bytes())
            try:
                key.verify(signed, data, ec.ECDSA(hashes.SHA256()))
                return None
            except InvalidSignature:
                continue
        return f"was changed after it was signed, or signed by a key that {self.folder} does not hold"

    def _own(self) -> Path:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        private = self.folder / PRIVATE
        if not private.is_file():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            try:
                with atomic_file(private, exclusive=True) as temporary:
                    temporary.chmod(0o600)
                    temporary.write_bytes(pem)
            except FileExistsError:
                # Another process was first: its key is the home's.
                pass
        key: Any = serialization.load_pem_private_key(private.read_bytes(), None)
        shown = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if all(path.read_bytes() != shown for path in self.folder.glob("*.pub")):
            # A machine that only served has the publisher's under the usual name.
            taken = (self.folder / PUBLIC).is_file()
            write_atomic(self.folder / (OWN_PUBLIC if taken else PUBLIC), shown)
        if private.stat().st_mode & 0o077 and private.stat().st_uid == os.getuid():
            raise PermanentError(f"{private} can be read by others than its owner: make a new one, then `chmod 600`")
        return private


def _library(part: str) -> Any:
    try:
        if part == "signing":
            from model_signing import signing

            return signing
        from model_signing import verifying
    except ImportError as error:
        raise PermanentError(f"versions cannot be signed or checked: {error}: run `make install`") from None
    return verifying
