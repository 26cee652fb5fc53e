"""Provides a pod's volumes as folders of this machine."""

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.resources import (
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from penstock.clients.machine.clock import unix_time
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.spec.service import Object
from penstock.errors import NotFound
from penstock.local.node.environment import ConfigError, expand, field, resource

# Path in a volume -> content and mode.
Files = dict[str, tuple[bytes, int]]

DEFAULT_MODE = 0o644
# A token is replaced when this fraction of its lifetime is left, as the kubelet does.
REFRESH_AT_FRACTION_LEFT = 0.2


class MountError(Exception):
    """A volume cannot be mounted now; the text says why. The caller retries."""


class Volumes:
    """The volumes of one pod."""

    def __init__(self, kube: Kube, pod: Object, folder: Path) -> None:
        self._kube = kube
        self._pod = pod
        self._namespace: str = pod["metadata"]["namespace"]
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._tokens: dict[str, tuple[bytes, float]] = {}

    async def mount(self) -> None:
        """Create all volumes, or update their contents. Raises MountError, KubeError."""
        for volume in self._pod["spec"].get("volumes", []):
            try:
                self._paths[volume["name"]] = await self._make(volume)
            except (NotFound, ConfigError, MountError) as error:
                raise MountError(
                    f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
                ) from error

    def mounts(self, container: Object, env: Mapping[str, str]) -> dict[str, str]:
        """Map each mountPath of a container to a path of this machine. env: for subPathExpr."""
        return {
            mount["mountPath"].rstrip("/"): str(self._mounted(mount, env))
            for mount in container.get("volumeMounts", [])
        }

    def _mounted(self, mount: Object, env: Mapping[str, str]) -> Path:
        """Return the path of a mount, created if absent. Raises MountError if subPath leaves the volume."""
        whole = self._paths[mount["name"]]
        part = mount.get("subPath") or expand(mount.get("subPathExpr", ""), env)
        path = whole / part
        if not path.resolve().is_relative_to(whole.resolve()):
            raise MountError(f"the path {part!r} leaves its volume {mount['name']!r}")
        if part and not path.exists():
            path.mkdir(parents=True)
        return path

    def unmount(self) -> None:
        """Remove the volumes' folders, but not hostPath volumes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _make(self, volume: Object) -> Path:
        if "hostPath" in volume:
            return host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        path: Path = self._folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if "emptyDir" not in volume:
            _write(path, await self._files(volume))
        return path

    async def _files(self, volume: Object) -> Files:
        projected = volume.get("projected")
        sources = projected.get("sources", []) if projected else [volume]
        files: Files = {}
        for source in sources:
            kind = next(kind for kind in source if kind != "name")
            mode = (projected or source[kind]).get("defaultMode", DEFAULT_MODE)
            files |= await self._source(kind, source[kind], mode)
        return files

    async def _source(self, kind: str, source: Object, mode: int) -> Files:
        if kind == "configMap":
            found = await self._data(CONFIG_MAPS, source["name"], source)
            content = {k: v.encode() for k, v in found.get("data", {}).items()}
            content |= {k: base64.b64decode(v) for k, v in found.get("binaryData", {}).items()}
            return _select(content, source, mode)
        if kind == "secret":
            found = await self._data(SECRETS, source.get("secretName") or source["name"], source)
            content = {k: base64.b64decode(v) for k, v in found.get("data", {}).items()}
            return _select(content, source, mode)
        if kind == "downwardAPI":
            return {
                item["path"]: (self._field(item).encode(), item.get("mode", mode))
                for item in source.get("items", [])
            }
        return {source["path"]: (await self._token(source), mode)}

    async def _data(self, resource: Resource, name: str, source: Object) -> Object:
        try:
            return await self._kube.get(resource, self._namespace, name)
        except NotFound:
            if source.get("optional"):
                return {}
            raise

    def _field(self, item: Object) -> str:
        if "fieldRef" in item:
            return field(self._pod, item["fieldRef"]["fieldPath"])
        reference, spec = item["resourceFieldRef"], self._pod["spec"]
        containers = [*spec.get("initContainers", []), *spec["containers"]]
        named = next(c for c in containers if c["name"] == reference["containerName"])
        return resource(named, reference)

    async def _token(self, source: Object) -> bytes:
        """Return a token of the pod's service account, cached until it must be replaced."""
        token, refresh_at_s = self._tokens.get(source["path"], (b"", 0.0))
        if unix_time() < refresh_at_s:
            return token
        metadata = self._pod["metadata"]
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": source.get("expirationSeconds", 3600),
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        if source.get("audience"):
            body["spec"]["audiences"] = [source["audience"]]
        account = self._pod["spec"].get("serviceAccountName", "default")
        answer = await self._kube.create(
            SERVICE_ACCOUNTS, self._namespace, body, name=account, sub="token"
        )
        token = str(answer["status"]["token"]).encode()
        now, end = unix_time(), parse_timestamp(answer["status"]["expirationTimestamp"])
        refresh_at_s = end - (end - now) * REFRESH_AT_FRACTION_LEFT
        self._tokens[source["path"]] = (token, refresh_at_s)
        return token

    async def _claim(self, name: str) -> Path:
        claim = await self._kube.get(VOLUME_CLAIMS, self._namespace, name)
        if claim.get("status", {}).get("phase") != "Bound":
            raise MountError(f"persistentvolumeclaim {name!r} is not bound")
        volume = await self._kube.get(VOLUMES, None, claim["spec"]["volumeName"])
        if "hostPath" not in volume["spec"]:
            raise MountError(
                f"the volume of claim {name!r} is not a hostPath, the only kind supported"
            )
        return host_path(volume["spec"]["hostPath"])


def host_path(source: Object) -> Path:
    """Return the path of a hostPath volume, after the checks of its type. Raises MountError."""
    path, kind = Path(source["path"]), source.get("type", "")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    if kind.startswith("Directory") and not path.is_dir():
        raise MountError(f"hostPath type check failed: {path} is not a directory")
    if kind.startswith("File") and not path.is_file():
        raise MountError(f"hostPath type check failed: {path} is not a file")
    return path


def _select(content: Mapping[str, bytes], source: Object, mode: int) -> Files:
    """Return files for all keys, or for those in `items`. Raises MountError for a missing key."""
    if "items" not in source:
        return {key: (value, mode) for key, value in content.items()}
    files: Files = {}
    for item in source["items"]:
        if item["key"] in content:
            files[item["path"]] = (content[item["key"]], item.get("mode", mode))
        elif not source.get("optional"):
            raise MountError(f"references a key that does not exist: {item['key']}")
    return files


def _write(folder: Path, files: Files) -> None:
    """Make the folder hold exactly these files; each changed one is replaced atomically."""
    for name, (content, mode) in files.items():
        target = folder / name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise MountError(f"the path {name!r} leaves its volume")
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        making = target.with_name(f".{target.name}.new")
        making.unlink(missing_ok=True)
        # Group and other bits of the mode are dropped: the pod runs as the owner.
        making.touch(mode=0o600)
        making.write_bytes(content)
        making.chmod(mode & 0o700)
        making.replace(target)
    kept = {folder / name for name in files}
    for path in list(folder.rglob("*")):
        if path not in kept and (path.is_file() or path.is_symlink()):
            path.unlink()
