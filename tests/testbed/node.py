"""A real node of a test cluster: containerd, the bridge network of its pods, the kubelet and kube-proxy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from tests.testbed import image, versions
from tests.testbed.controlplane import Addresses, wait
from tests.testbed.host import Host, make_cgroups
from tests.testbed.process import Process

# Each host has a /run of its own, so that the usual place is as good as any.
_SOCKET: Final = "/run/containerd/containerd.sock"
_CNI_DIRECTORIES: Final = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")


def start_runtime(
    host: Host, addresses: Addresses, archive: Path, *, first: bool = True, snapshotter: str = "native"
) -> list[Process]:
    """Start containerd and give it the image; it needs no API server, so that this goes beside its start.

    The first node of a cluster has the first addresses of its pods; what others have is known when they have joined.
    """
    directory = host.directory / "runtime"
    directory.mkdir()
    (directory / "cni").mkdir()
    if first:
        write_network(host, [_first_of(text) for text in addresses.pod_cidr.split(",")])
    (directory / "containerd.toml").write_text(_containerd(directory, snapshotter))
    daemon = host.spawn("containerd", ["containerd", "--config", str(directory / "containerd.toml")])
    ctr = ["ctr", "--address", _SOCKET, "--namespace", "k8s.io"]
    wait("containerd", lambda: "Server:" in host.run([*ctr, "version"]), [daemon], 30)
    import_images(host, archive, snapshotter)
    return [daemon]


def import_images(host: Host, archive: Path, snapshotter: str) -> None:
    """Give the node's containerd the images of an archive."""
    ctr = ["ctr", "--address", _SOCKET, "--namespace", "k8s.io"]
    host.run([*ctr, "images", "import", "--snapshotter", snapshotter, str(archive)], timeout=300)


def use_registry(host: Host, url: str) -> None:
    """Have the node's containerd look for the images of every registry at one, by plain HTTP.

    It reads this at each pull. See https://github.com/containerd/containerd/blob/v1.6.20/docs/hosts.md.
    """
    place = host.directory / "runtime/registries/_default"
    place.mkdir(parents=True, exist_ok=True)
    (place / "hosts.toml").write_text(f'[host."{url}"]\n  capabilities = ["pull", "resolve"]\n')


PROGRAMS: Final = ("kubelet", "kube-proxy")


def start_kubelet(
    host: Host,
    addresses: Addresses,
    node: str,
    cgroup: str,
    *,
    proxy: str = "nftables",
    dns: bool = False,
    version: str = versions.KUBERNETES,
) -> list[Process]:
    """Start the kubelet and kube-proxy; the API server has to be ready."""
    d = host.directory
    make_cgroups(cgroup)
    (d / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    configuration = _kubelet(d, cgroup, [addresses.dns] if dns else [])
    if versions.minor(version) < (1, 31):
        del configuration["failCgroupV1"]
    (d / "kubelet.yaml").write_text(json.dumps(configuration))
    kubelet = [
        f"--config={d}/kubelet.yaml",
        f"--kubeconfig={d}/node.conf",
        f"--root-dir={d}/kubelet",
        f"--cert-dir={d}/kubelet/pki",
        f"--hostname-override={node}",
        f"--node-ip={','.join(addresses.hosts)}",
    ]
    return [
        host.spawn("kubelet", [str(versions.program("kubelet", version)), *kubelet]),
        start_proxy(host, addresses, node, proxy, version=version),
    ]


def start_proxy(
    host: Host, addresses: Addresses, node: str, mode: str, *, version: str = versions.KUBERNETES
) -> Process:
    """Start kube-proxy; it does without a Node object of its name."""
    d = host.directory
    (d / "kube-proxy.yaml").write_text(json.dumps(_proxy(d, addresses, mode)))
    program = str(versions.program("kube-proxy", version))
    argv = [program, f"--config={d}/kube-proxy.yaml", f"--hostname-override={node}"]
    return host.spawn("kube-proxy", argv)


def write_network(
    host: Host, subnets: Sequence[str], *, bridge: str = "cni0", masquerade: bool = True, mtu: int = 0
) -> None:
    """Give the node the networks of its pods, by IP version one at most; it is not Ready before.

    ``bridge`` joins the pods; ``masquerade``: what leaves for elsewhere has the node's address; ``mtu`` 0: as usual.
    """
    directory = host.directory / "runtime"
    network = _network(directory, subnets)
    network["plugins"][0].update({"bridge": bridge, "ipMasq": masquerade, **({"mtu": mtu} if mtu else {})})
    (directory / "cni" / "10-testbed.conflist").write_text(json.dumps(network))


def _first_of(pod_cidr: str) -> str:
    """Return the part of a cluster's network that its first node gets: of the size that Kubernetes gives by default."""
    whole = ip_network(pod_cidr)
    return str(next(whole.subnets(new_prefix=24 if whole.version == 4 else 64)))


def _network(directory: Path, subnets: Sequence[str]) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(directory / "ipam"),
            "ranges": [[{"subnet": subnet}] for subnet in subnets],
            "routes": [{"dst": "::/0" if ":" in subnet else "0.0.0.0/0"} for subnet in subnets],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "testbed", "plugins": [bridge, portmap]}


def _containerd(directory: Path, snapshotter: str) -> str:
    plugins = next((place for place in _CNI_DIRECTORIES if Path(place, "bridge").exists()), _CNI_DIRECTORIES[0])
    return f"""version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image.PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{directory}/registries"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
"""


def _kubelet(d: Path, cgroup: str, dns: list[str]) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{d}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{d}/kubelet.crt",
        "tlsPrivateKeyFile": f"{d}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "clusterDomain": "cluster.local",
        "clusterDNS": dns,
        "resolvConf": f"{d}/resolv.conf",
        "syncFrequency": "10s",
        "podLogsDir": f"{d}/pod-logs",
    }


def _proxy(d: Path, addresses: Addresses, mode: str) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clientConnection": {"kubeconfig": f"{d}/kube-proxy.conf"},
        "clusterCIDR": addresses.pod_cidr,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "nftables": {"minSyncPeriod": "0s"},
    }
