"""A certificate of the loopback interface with its own authority, and a context of TLS with it."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Files that `loopback_certificate` writes.
AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"


def loopback_certificate(
    folder: Path, valid_for: datetime.timedelta = datetime.timedelta(days=1)
) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and the file of the authority that clients have to trust.

    valid_for: from now, of the certificate; negative if it has expired.
    """
    issuer_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    issuer = _certificate("authority", "authority", issuer_key, issuer_key, end, is_authority=True)
    end += valid_for - datetime.timedelta(days=1)
    certificate = _certificate("loopback", "authority", key, issuer_key, end, is_authority=False)
    for name, content in ((AUTHORITY, issuer), (CERTIFICATE, certificate)):
        (folder / name).write_bytes(content.public_bytes(serialization.Encoding.PEM))
    (folder / KEY).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context, folder / AUTHORITY


def _certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    end: datetime.datetime,
    *,
    is_authority: bool,
) -> x509.Certificate:
    """A certificate that is valid since an hour ago. key: of the subject. end: of its validity."""
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
