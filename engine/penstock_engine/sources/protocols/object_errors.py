"""Turns exceptions of the object-store library into errors of a fetch."""

import re

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.protocols.http_errors import source_changed, status_error

STATUS = re.compile(r"status code: (\d{3})")
FAILURE = re.compile(r"HttpError \{\s*kind: (\w+)")  # of a request without an answer
# Codes of S3 and stores like it, and of Azure.
WRONG_KEYS = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|AuthenticationFailed|"
    r"XAdminUserNotFound"  # of versitygw
)
WRONG_REGION = re.compile(
    r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|"
    r"incorrectly configured region"
)
NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
# Addresses of metadata services, which the library asks if there are no credentials in the environment.
METADATA = re.compile(
    r"latest/api/token|latest/meta-data|169\.254\.169\.254|metadata\.google\.internal|oauth2/token"
)


def object_error(error: Exception, bucket: str, secret: str) -> FetchError:
    """The error for a request to a store. The library's text, which has URLs, is not passed on.

    secret: where the credentials come from, for the message.
    """
    text, kind = str(error), type(error).__name__
    if METADATA.search(text):
        return FetchError(
            "NoCredentials",
            f"there are no credentials for {bucket}: set {secret}, or a workload identity",
        )
    if NO_BUCKET.search(text):
        return FetchError(
            "BucketNotFound", f"there is no bucket {bucket}: check the URI and the endpoint"
        )
    found = STATUS.search(text)
    status = int(found[1]) if found else None
    if WRONG_KEYS.search(text):
        return status_error(401, {}, bucket, secret)
    if status in (None, 301, 307, 400) and WRONG_REGION.search(text):
        return FetchError(
            "WrongRegion", f"{bucket} is in another region: set AWS_REGION to the one that it is in"
        )
    if kind == "PreconditionError":
        return source_changed()
    if kind == "FileNotFoundError":
        return status_error(404, {}, bucket, secret)
    if status is not None:
        return status_error(status, {}, bucket, secret)
    return _transport_error(text, bucket)


def _transport_error(text: str, bucket: str) -> FetchError:
    """The error for a request without an answer."""
    if "certificate" in text.lower():
        return FetchError(
            "UntrustedCertificate",
            f"the certificate of the store of {bucket} is not trusted: add its authority to the file of "
            "SSL_CERT_FILE",
        )
    failure = FAILURE.search(text)
    kind = failure[1] if failure else ""
    if kind == "Timeout":
        return FetchError(
            "NoResponse",
            f"the store of {bucket} took the request and sends nothing: wait, or check the endpoint",
            is_retryable=True,
        )
    if kind == "Connect":
        return FetchError(
            "Unreachable",
            f"the store of {bucket} cannot be reached: check the endpoint, the network policies and "
            "HTTPS_PROXY",
            is_retryable=True,
        )
    return FetchError(
        "ConnectionLost",
        f"the store of {bucket} closed the connection before the answer",
        is_retryable=True,
    )
