"""A pod's volumes as folders of this machine."""

import base64
import shutil
from pathlib import Path
from typing import Any

from penstock.adapters.clock import wall
from penstock.adapters.kube import Kube
from penstock.adapters.resources import (
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUME_CLAIMS,
    VOLUMES,
)
from penstock.core.timestamps import parse_timestamp
from penstock.errors import NotFound
from penstock.local.node.environment import field

Object = dict[str, Any]

# A token is replaced when this part of its life is left, as the kubelet does.
REFRESH_AT_FRACTION_LEFT = 0.2


class MountError(Exception):
    """A volume cannot be had now; the text says why. Worth trying again."""


class Volumes:
    """The volumes of one pod. Remakes service account tokens before they expire."""

    def __init__(self, kube: Kube, pod: Object, folder: Path) -> None:
        self._kube = kube
        self._pod = pod
        self._namespace: str = pod["metadata"]["namespace"]
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self.refresh_at_s: float | None = None

    async def mount(self) -> None:
        """Make every volume, or make their contents anew. Raises MountError."""
        for volume in self._pod["spec"].get("volumes", []):
            try:
                self._paths[volume["name"]] = await self._make(volume)
            except NotFound as error:
                raise MountError(
                    f'MountVolume failed for volume "{volume["name"]}": {error}'
                ) from error

    def mounts(self, container: Object) -> dict[str, str]:
        """mountPath -> folder or file of this machine, for one container."""
        return {
            mount["mountPath"].rstrip("/"): str(
                self._paths[mount["name"]] / mount.get("subPath", "")
            )
            for mount in container.get("volumeMounts", [])
        }

    def unmount(self) -> None:
        """Remove what was made here; paths of the host stay."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _make(self, volume: Object) -> Path:
        if "hostPath" in volume:
            return host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        path: Path = self._folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if "configMap" in volume:
            await self._config_map(path, volume["configMap"], volume["configMap"]["name"])
        elif "secret" in volume:
            await self._secret(path, volume["secret"], volume["secret"]["secretName"])
        elif "projected" in volume:
            for source in volume["projected"]["sources"]:
                await self._project(path, source)
        elif "downwardAPI" in volume:
            self._downward(path, volume["downwardAPI"].get("items", []))
        elif "emptyDir" not in volume:
            raise MountError(f"volumes of this kind are not offered here: {sorted(volume)[0]}")
        return path

    async def _project(self, path: Path, source: Object) -> None:
        if "configMap" in source:
            await self._config_map(path, source["configMap"], source["configMap"]["name"])
        elif "secret" in source:
            await self._secret(path, source["secret"], source["secret"]["name"])
        elif "downwardAPI" in source:
            self._downward(path, source["downwardAPI"].get("items", []))
        elif "serviceAccountToken" in source:
            await self._token(path, source["serviceAccountToken"])

    async def _config_map(self, path: Path, source: Object, name: str) -> None:
        try:
            found = await self._kube.get(CONFIG_MAPS, self._namespace, name)
        except NotFound:
            if source.get("optional"):
                return
            raise
        content = {k: v.encode() for k, v in found.get("data", {}).items()}
        content |= {k: base64.b64decode(v) for k, v in found.get("binaryData", {}).items()}
        _write(path, content, source.get("items"), 0o644)

    async def _secret(self, path: Path, source: Object, name: str) -> None:
        try:
            found = await self._kube.get(SECRETS, self._namespace, name)
        except NotFound:
            if source.get("optional"):
                return
            raise
        content = {k: base64.b64decode(v) for k, v in found.get("data", {}).items()}
        _write(path, content, source.get("items"), 0o600)

    def _downward(self, path: Path, items: list[Object]) -> None:
        content = {
            item["path"]: field(self._pod, item["fieldRef"]["fieldPath"]).encode()
            for item in items
            if "fieldRef" in item
        }
        _write(path, content, None, 0o644)

    async def _token(self, path: Path, source: Object) -> None:
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
        _write(path, {source["path"]: answer["status"]["token"].encode()}, None, 0o600)
        now, end = wall(), parse_timestamp(answer["status"]["expirationTimestamp"])
        self.refresh_at_s = end - (end - now) * REFRESH_AT_FRACTION_LEFT

    async def _claim(self, name: str) -> Path:
        claim = await self._kube.get(VOLUME_CLAIMS, self._namespace, name)
        if claim.get("status", {}).get("phase") != "Bound":
            raise MountError(f"persistentvolumeclaim {name!r} is not bound")
        volume = await self._kube.get(VOLUMES, None, claim["spec"]["volumeName"])
        if "hostPath" not in volume["spec"]:
            raise MountError(
                f"the volume of claim {name!r} is not a hostPath, the one kind offered here"
            )
        return host_path(volume["spec"]["hostPath"])


def host_path(source: Object) -> Path:
    """A path of this machine, checked as its type asks. Raises MountError."""
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


def _write(path: Path, content: dict[str, bytes], items: list[Object] | None, mode: int) -> None:
    names = {item["key"]: item["path"] for item in items} if items else {k: k for k in content}
    for key, name in names.items():
        if key not in content:
            raise MountError(f"references a key that does not exist: {key}")
        target = path / name
        if not target.resolve().is_relative_to(path.resolve()):
            raise MountError(f"the path {name!r} leaves its volume")
        target.parent.mkdir(parents=True, exist_ok=True)
        making = target.with_name(f".{target.name}.new")
        making.touch(mode=mode)
        making.write_bytes(content[key])
        making.replace(target)
