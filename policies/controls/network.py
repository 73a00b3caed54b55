"""Networks: public addresses, open ports, default groups, flow logs, groups of fast fabrics, metadata services.

Of AWS alone: subnets, as a vSwitch gives out no public address, and default groups, as a VPC of Alibaba Cloud has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from policies import fabric, rollout, rules
from policies.checks import both, equal, failed, governed, never, passed, undecided, where
from policies.control import Check, Control, Edits, Judgement, Remedy, Severity, StackCheck, Verdict
from policies.resources import Resource
from policies.rules import Rule
from policies.values import UNKNOWN, Undecided

TOPIC = "network"

SEGREGATED: Mapping[str, tuple[str, ...]] = {"iso27001": ("A.8.20", "A.8.21", "A.8.22"), "soc2": ("CC6.6",)}
NO_PUBLIC: Mapping[str, tuple[str, ...]] = {
    **SEGREGATED,
    "pci": ("1.4.5",),
    "hipaa": ("164.308(a)(3)(i)", "164.312(a)(1)"),
}

REMOTE = {22: "SSH", 3389: "RDP"}
RISKY = {
    20: "FTP", 21: "FTP", 23: "Telnet", 135: "RPC", 139: "NetBIOS", 445: "SMB", 1433: "SQL Server", 1521: "Oracle",
    2049: "NFS", 2375: "Docker", 2379: "etcd", 3306: "MySQL", 5432: "PostgreSQL", 5601: "Kibana", 6006: "TensorBoard",
    6379: "Redis", 8265: "Ray", 8888: "Jupyter", 9092: "Kafka", 9200: "Elasticsearch", 10250: "kubelet",
    11211: "memcached", 27017: "MongoDB",
}  # fmt: skip
"""Ports of services that shouldn't meet the internet: those of prowler's checks of security groups
(`ec2_securitygroup_allow_ingress_from_internet_to_tcp_port_*`), and what training clusters run."""

ADMITTED = frozenset({"ACCEPT", "ALLOW"})
"""What flow logs call traffic that was let through."""

MOST_HOPS = 2


def _judged(test: Callable[[Rule], str]) -> Check:
    """Each rule: `test` gives what is wrong with it, or nothing."""

    def check(resource: Resource) -> Iterator[Judgement]:
        for rule in rules.rules(resource):
            try:
                wrong = test(rule)
            except Undecided:
                yield undecided(rule.place)
                continue
            yield failed(rule.place, wrong) if wrong else passed(rule.place, "is narrow")

    return check


def _open(ports: Mapping[int, str]) -> Check:
    def test(rule: Rule) -> str:
        if not rule.inward or not rule.of_the_internet:
            return ""
        names = sorted({name for port, name in ports.items() if rule.lets(port)})
        return f"lets the internet in to {', '.join(names)}" if names else ""

    return _judged(test)


def _everything_in(rule: Rule) -> str:
    return "lets the internet in to everything" if rule.inward and rule.of_the_internet and rule.lets_everything else ""


def _everything_out(rule: Rule) -> str:
    out = not rule.inward and rule.of_the_internet and rule.lets_everything
    return "lets everything out to the internet" if out else ""


def _described(rule: Rule) -> str:
    return "" if rule.described else "has no description"


def _no_rules(resource: Resource) -> Iterator[Judgement]:
    """A default group that lets nothing through: what is in it by mistake reaches nothing."""
    for direction in ("ingress", "egress"):
        entries = resource.at(direction)
        if entries is UNKNOWN:
            yield undecided(direction)
        elif entries:
            yield failed(direction, f"has {len(entries)} rules, but must have none")
        else:
            yield passed(direction, "has no rules")


def _template_address(resource: Resource) -> Iterator[Judgement]:
    """No interface of a template asks for a public address; without interfaces the subnet decides."""
    yield from never("networkInterfaces.*.associatePublicIpAddress")(resource)


def _no_bandwidth(path: str) -> Check:
    """No bandwidth to the internet, without which Alibaba Cloud gives no public address (ECS API, RunInstances)."""
    return where(path, lambda value: int(value) == 0, "0", absent=Verdict.PASS)


def _flow_logged(types: tuple[str, ...], path: str) -> StackCheck:
    return governed(
        types,
        path,
        "flow log",
        both(
            where("trafficType", lambda kind: str(kind).upper() not in ADMITTED, "all or refused", absent=Verdict.PASS),
            where("status", lambda status: status != "Inactive", "Active", absent=Verdict.PASS),
        ),
    )


TOKENS = "metadataOptions.httpTokens"
HOPS = "metadataOptions.httpPutResponseHopLimit"
FEW_HOPS = f"{MOST_HOPS} at most"
SECURED = {"cis": ("AWS 6.7",), "pci": ("8.2.8",), "iso27001": ("A.8.20", "A.8.21", "A.8.22"), "soc2": ("CC7.2",)}


def _ask_for_tokens(*path: str) -> Remedy:
    def mend(resource: Resource) -> Edits:
        there = resource.at(".".join(path))
        return {} if there is UNKNOWN or there == "required" else {path: "required"}

    return mend


def _few_hops(*path: str) -> Remedy:
    """As many as containers need: fewer could take the service from them."""

    def mend(resource: Resource) -> Edits:
        hops = resource.at(".".join(path))
        return {} if hops is UNKNOWN or hops is None or int(hops) <= MOST_HOPS else {path: MOST_HOPS}

    return mend


OF_ECS = (
    "alicloud:ecs/instance:Instance",
    "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate",
    "alicloud:ecs/launchTemplate:LaunchTemplate",
)
OF_EC2 = ("aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/instance:Instance")
"""What a change of the metadata service's settings replaces nothing of that runs."""


def _hops(path: str) -> Check:
    return where(path, lambda value: int(value) <= MOST_HOPS, FEW_HOPS, absent=Verdict.PASS)


CONTROLS: tuple[Control, ...] = (
    Control(
        "NET-PUBLIC-01",
        "Nodes have no public address",
        TOPIC,
        Severity.HIGH,
        "Ask for no public address, and reach nodes by a session manager",
        NO_PUBLIC,
        checks={
            "aws:ec2/launchTemplate:LaunchTemplate": _template_address,
            "aws:ec2/instance:Instance": never("associatePublicIpAddress"),
            "aws:ec2/launchConfiguration:LaunchConfiguration": never("associatePublicIpAddress"),
            "alicloud:ecs/instance:Instance": both(never("allocatePublicIp"), _no_bandwidth("internetMaxBandwidthOut")),
            "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": _no_bandwidth("internetMaxBandwidthOut"),
            "alicloud:ecs/launchTemplate:LaunchTemplate": _no_bandwidth("internetMaxBandwidthOut"),
            "alicloud:ess/scalingConfiguration:ScalingConfiguration": _no_bandwidth("internetMaxBandwidthOut"),
        },
    ),
    Control(
        "NET-PUBLIC-02",
        "Subnets give out no public address",
        TOPIC,
        Severity.HIGH,
        "Set `map_public_ip_on_launch` to false: it also keeps nodes of several interfaces from launching",
        SEGREGATED,
        checks={"aws:ec2/subnet:Subnet": never("mapPublicIpOnLaunch")},
    ),
    Control(
        "NET-INGRESS-01",
        "No group lets the internet in to everything",
        TOPIC,
        Severity.CRITICAL,
        "Name the ports, and the networks or groups that need them",
        {**SEGREGATED, "cis": ("AWS 6.3", "AWS 6.4"), "pci": ("1.2.8", "1.3.1")},
        checks=dict.fromkeys(rules.TYPES, _judged(_everything_in)),
    ),
    Control(
        "NET-INGRESS-02",
        "No group lets the internet in to SSH or RDP",
        TOPIC,
        Severity.HIGH,
        "Take the rule away, and use a session manager",
        {
            **SEGREGATED,
            "cis": ("AWS 6.3", "AWS 6.4"),
            "pci": ("1.2.8", "1.3.1"),
            "hipaa": ("164.308(a)(1)(ii)(B)", "164.312(e)(1)"),
        },
        checks=dict.fromkeys(rules.TYPES, _open(REMOTE)),
    ),
    Control(
        "NET-INGRESS-03",
        "No group lets the internet in to databases, notebooks and the like",
        TOPIC,
        Severity.HIGH,
        "Name the networks or groups that need the port; for a file system of NAS, those that may mount it",
        {**SEGREGATED, "pci": ("1.2.8", "1.3.1")},
        checks=dict.fromkeys((*rules.TYPES, rules.MOUNTS), _open(RISKY)),
    ),
    Control(
        "NET-EGRESS-01",
        "No group lets everything out to the internet",
        TOPIC,
        Severity.MEDIUM,
        "Name the ports and ends that nodes need, such as HTTPS to the endpoints of services; on Alibaba Cloud, drop "
        "the rest by a rule of the lowest priority",
        SEGREGATED,
        checks=dict.fromkeys(rules.TYPES, _judged(_everything_out)),
        in_stack={rules.ALICLOUD_GROUP: fabric.drops_the_rest},
    ),
    Control(
        "NET-DESCRIBED-01",
        "Rules of groups say what they are for",
        TOPIC,
        Severity.LOW,
        "Give each rule a description",
        {},
        checks=dict.fromkeys(rules.TYPES, _judged(_described)),
    ),
    Control(
        "NET-DEFAULT-01",
        "Default groups let nothing through",
        TOPIC,
        Severity.HIGH,
        "Declare the VPC's default group without rules",
        {"cis": ("AWS 6.5",), "iso27001": ("A.8.20", "A.8.21", "A.8.22")},
        checks={rules.DEFAULT_GROUP: _no_rules},
        in_stack={
            "aws:ec2/vpc:Vpc": governed((rules.DEFAULT_GROUP,), "vpcId", "default group without rules", _no_rules)
        },
    ),
    Control(
        "NET-FLOW-01",
        "Networks keep flow logs",
        TOPIC,
        Severity.MEDIUM,
        "Declare a flow log of the VPC, of all traffic or of what was rejected",
        {
            "cis": ("AWS 4.7", "Alibaba Cloud 3.3"),
            "pci": ("10.2.1",),
            "hipaa": ("164.308(a)(1)(ii)(D)", "164.312(b)"),
            "iso27001": ("A.8.15", "A.8.16"),
            "soc2": ("CC7.2", "CC7.3"),
            "gdpr": ("Art. 25", "Art. 30"),
        },
        in_stack={
            "aws:ec2/vpc:Vpc": _flow_logged(("aws:ec2/flowLog:FlowLog",), "vpcId"),
            "alicloud:vpc/network:Network": _flow_logged(("alicloud:vpc/flowLog:FlowLog",), "resourceId"),
        },
    ),
    Control(
        "NET-FABRIC-01",
        "Groups of fast interfaces let their own traffic pass",
        TOPIC,
        Severity.HIGH,
        "Give the group a rule of every protocol to itself, inward and outward",
        {},
        in_stack={
            "aws:ec2/launchTemplate:LaunchTemplate": fabric.of_efa,
            "alicloud:ess/scalingConfiguration:ScalingConfiguration": fabric.of_erdma,
        },
    ),
    Control(
        "NET-METADATA-01",
        "Metadata services ask for tokens",
        TOPIC,
        Severity.HIGH,
        "Set `http_tokens` to required; for a scaling configuration of ESS, have OOS set it before it is activated",
        SECURED,
        checks={
            "aws:ec2/launchTemplate:LaunchTemplate": equal(TOKENS, "required"),
            "aws:ec2/instance:Instance": equal(TOKENS, "required"),
            "aws:ec2/launchConfiguration:LaunchConfiguration": equal(TOKENS, "required"),
            "alicloud:ecs/instance:Instance": equal("httpTokens", "required"),
            "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": equal("httpTokens", "required"),
            "alicloud:ecs/launchTemplate:LaunchTemplate": equal("httpTokens", "required"),
            rollout.CONFIGURATION: rollout.inactive,
        },
        in_stack={rollout.CONFIGURATION: rollout.asks_for_tokens},
        remedies={
            **dict.fromkeys(OF_EC2, _ask_for_tokens(*TOKENS.split("."))),
            **dict.fromkeys(OF_ECS, _ask_for_tokens("httpTokens")),
        },
    ),
    Control(
        "NET-METADATA-02",
        "Answers of metadata services stay on the node",
        TOPIC,
        Severity.MEDIUM,
        f"Set the hop limit to 1, or to {MOST_HOPS} where containers ask",
        SECURED,
        checks={
            "aws:ec2/launchTemplate:LaunchTemplate": _hops(HOPS),
            "aws:ec2/instance:Instance": _hops(HOPS),
            "alicloud:ecs/instance:Instance": _hops("httpPutResponseHopLimit"),
            "alicloud:ecs/ecsLaunchTemplate:EcsLaunchTemplate": _hops("httpPutResponseHopLimit"),
            "alicloud:ecs/launchTemplate:LaunchTemplate": _hops("httpPutResponseHopLimit"),
        },
        remedies={
            **dict.fromkeys(OF_EC2, _few_hops(*HOPS.split("."))),
            **dict.fromkeys(OF_ECS, _few_hops("httpPutResponseHopLimit")),
        },
    ),
)
