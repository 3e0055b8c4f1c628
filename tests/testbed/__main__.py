"""Commands of the test clusters: ``python -m tests.testbed COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.testbed import build, cni, process, registry, system, testbed, versions

_STANDING = f"{registry.PREFIX}standing"


def main(argv: list[str]) -> int:
    """Run one command and return its exit status."""
    args = _parser().parse_args(argv)
    try:
        return int(_COMMANDS[args.command](args) or 0)
    except (process.CommandFailed, LookupError, FileExistsError, system.Missing) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start clusters that stay until `down`")
    up.add_argument("clusters", type=int)
    up.add_argument("--nodes", action="store_true", help="a real node in each cluster")
    up.add_argument("--kwok", type=int, default=0, help="the number of made-up nodes in each cluster")
    up.add_argument("--qps", type=int, default=0, help="request rate of controller-manager and scheduler")
    up.add_argument("--same-pod-cidr", action="store_true", help="all clusters use the same pod addresses")
    up.add_argument("--dns", action="store_true", help="CoreDNS answers the pods")
    up.add_argument(
        "--kubernetes", nargs="+", default=[versions.KUBERNETES], help="releases of one cluster after the other: 1.30"
    )
    up.add_argument("--cni", choices=(cni.BRIDGE, *cni.PROGRAMS), default=cni.BRIDGE, help="what joins the nodes")
    up.add_argument(
        "--families", nargs="+", default=["4"], help="IP versions of one cluster after the other: 4, 6, 46 or 64"
    )
    kubectl = commands.add_parser("kubectl", help="run kubectl in a cluster")
    kubectl.add_argument("cluster", type=int)
    kubectl.add_argument("rest", nargs=argparse.REMAINDER)
    exec_ = commands.add_parser("exec", help="run a program on the test network, or (--cluster) in a cluster's network")
    exec_.add_argument("--cluster", type=int, default=0)
    exec_.add_argument("rest", nargs=argparse.REMAINDER)
    for command in (up, kubectl, exec_, commands.add_parser("down", help="end clusters started with `up`")):
        command.add_argument("--name", default=_STANDING)
    commands.add_parser("list", help="list the testbeds on this machine")
    commands.add_parser("sweep", help="remove what dead runs left behind")
    commands.add_parser("check", help="say what this machine lacks")
    commands.add_parser("install", help="install the missing system packages")
    built = commands.add_parser("build", help="build the missing programs")
    built.add_argument("names", nargs="*", metavar="PROGRAM", help="others than the usual ones: skipper, flanneld ...")
    built.add_argument("--kubernetes", default="", help="the programs of this release instead, such as 1.30")
    commands.add_parser("guard").add_argument("name")
    return parser


def _up(args: argparse.Namespace) -> None:
    system.require(cni.PACKAGES if args.cni != cni.BRIDGE else {})
    build.ensure()
    for version in map(versions.release, args.kubernetes):
        build.ensure(versions.SERVERS, version)
    build.ensure([cni.PROGRAMS[args.cni]] if args.cni in cni.PROGRAMS else [])
    begin = time.monotonic()
    bed = testbed.Testbed(
        args.clusters,
        nodes=args.nodes,
        kwok=args.kwok,
        qps=args.qps,
        same_pod_cidr=args.same_pod_cidr,
        dns=args.dns,
        families=args.families,
        versions=args.kubernetes,
        cni=args.cni,
        name=args.name,
        stays=True,
    )
    bed.start()
    for cluster in bed.clusters:
        print(f"{cluster.name}: {cluster.server} ready after {cluster.seconds:.1f} s, {cluster.kubeconfig}")
    print(f"testbed {bed.name} stands after {time.monotonic() - begin:.1f} s; its network is {bed.lan}")


def _kubectl(args: argparse.Namespace) -> int:
    cluster = testbed.attach(args.name)[args.cluster]
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    return _become([*process.entry(cluster.namespace), str(versions.program("kubectl")), *_words(args)])


def _exec(args: argparse.Namespace) -> int:
    bed = testbed.attach(args.name)
    netns = bed[args.cluster].namespace if args.cluster else bed.lan
    return _become([*process.entry(netns), *_words(args)])


def _words(args: argparse.Namespace) -> list[str]:
    return args.rest[1:] if args.rest[:1] == ["--"] else list(args.rest)


def _become(argv: list[str]) -> int:
    os.execvp(argv[0], argv)


def _list(args: argparse.Namespace) -> None:
    for name in registry.names():
        print(name, "stands" if any(map(registry.alive, registry.read(name).get("inits", []))) else "is dead")


def _check(args: argparse.Namespace) -> int:
    lacking = [*system.missing(), *(f"program {name}, not built yet" for name in versions.missing())]
    print("\n".join(lacking) or "nothing is missing")
    return 1 if lacking else 0


def _build(args: argparse.Namespace) -> None:
    if args.kubernetes:
        build.ensure(versions.SERVERS, versions.release(args.kubernetes))
    else:
        build.ensure(args.names or versions.PROGRAMS)


_COMMANDS = {
    "up": _up,
    "down": lambda args: testbed.down(args.name),
    "kubectl": _kubectl,
    "exec": _exec,
    "list": _list,
    "sweep": lambda args: print("\n".join(registry.sweep()) or "nothing to remove"),
    "check": _check,
    "install": lambda args: system.install(),
    "build": _build,
    "guard": lambda args: testbed.guard(args.name),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
