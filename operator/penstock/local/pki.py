"""Certificate authority of a local cluster, and the certificates and keys that it issues."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.local.record import write_private

LIFETIME = timedelta(days=365)


class Authority:
    """A certificate authority whose certificate is written to `folder`/ca.crt. Its key is not stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("penstock-local")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = self._builder(self._name, self._key, constraints)
        certificate = builder.add_extension(identifier, critical=False)
        write_private(folder / "ca.crt", _pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        file: str,
        common_name: str,
        *,
        organization: str = "",
        addresses: tuple[str, ...] = (),
    ) -> None:
        """Write `file`.crt and `file`.key, usable by a client and, with addresses, by a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        builder = (
            self._builder(_name(common_name, organization), key, constraints)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
        )
        if addresses:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(address) for address in addresses]),
                critical=False,
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        write_private(self._folder / f"{file}.crt", _pem(certificate))
        write_private(self._folder / f"{file}.key", _key_pem(key))

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        constraints: x509.BasicConstraints,
    ) -> x509.CertificateBuilder:
        """The parts that the authority's certificate and those that it issues have in common."""
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
            .add_extension(constraints, critical=True)
            .add_extension(_usage(signs_certificates=constraints.ca), critical=True)
        )


def write_signing_key(path: Path) -> None:
    """Write a new key for signing ServiceAccount tokens."""
    write_private(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))


def _name(common_name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
