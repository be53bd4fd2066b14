"""A certificate authority, a certificate for this machine's addresses, and a server that speaks TLS before another."""

import asyncio
import datetime as dt
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority's certificate, the machine's and its key."""

    authority: Path
    certificate: Path
    key: Path


def certificates_in(folder: Path) -> Certificates:
    made = Certificates(folder / "ca.pem", folder / "machine.pem", folder / "machine.key")
    ours, theirs = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
    now = dt.datetime.now(dt.UTC)

    def signed(subject: x509.Name, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> bytes:
        # Ray reaches itself by the address of the network.
        addresses = {each.address for every in psutil.net_if_addrs().values() for each in every if "." in each.address}
        names = [x509.IPAddress(ipaddress.ip_address(each)) for each in sorted(addresses)]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(ours, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    made.authority.write_bytes(signed(issuer, ours, is_authority=True))
    machine = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made.certificate.write_bytes(signed(machine, theirs, is_authority=False))
    unprotected = serialization.NoEncryption()
    made.key.write_bytes(
        theirs.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unprotected)
    )
    return made


@contextmanager
def tls_before(address: str, made: Certificates) -> Iterator[str]:
    """Yields the https address of a server that hands all on to the http server at `address`."""
    host, port = address.removeprefix("http://").split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_behind = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, to_behind), copy(behind, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(hand_on, HOST, 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
